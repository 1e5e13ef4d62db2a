# The properties the store itself acts on (section 2.3): `key 0x01 value 0x02` repeated, the last terminator optional.

cdef struct Marks:
    const uint8_t *tags
    const uint8_t *keys
    const uint8_t *uniq
    int tags_len
    int keys_len
    int uniq_len
    int delay           # DELAY as a number; 0 when absent or not a positive decimal
    int inner_num       # INNER_NUM, likewise
    int64_t inner_base  # INNER_BASE; -1 when absent or no decimal


cdef int64_t decimal(const uint8_t *s, Py_ssize_t n, int digits_max) noexcept nogil:
    """A decimal without sign of at most digits_max digits, else -1."""
    cdef int64_t value = 0
    cdef Py_ssize_t i
    if n == 0 or n > digits_max:
        return -1
    for i in range(n):
        if s[i] < 48 or s[i] > 57:
            return -1
        value = value * 10 + (s[i] - 48)
    return value


cdef void find_marks(const uint8_t *p, Py_ssize_t n, Marks *marks) noexcept nogil:
    """Fill `marks` from encoded properties. A key given twice: the last one counts, as in the Java decoder's map."""
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t end
    cdef Py_ssize_t key_len
    cdef Py_ssize_t value_len
    cdef const uint8_t *hit
    cdef const uint8_t *value
    memset(marks, 0, sizeof(Marks))
    marks.inner_base = -1
    while i < n:
        hit = <const uint8_t *> memchr(p + i, 2, n - i)
        end = n if hit == NULL else hit - p
        hit = <const uint8_t *> memchr(p + i, 1, end - i)
        if hit != NULL:
            key_len = hit - (p + i)
            value = hit + 1
            value_len = (p + end) - value
            if value_len > 0:
                if key_len == 4:
                    if memcmp(p + i, b"TAGS", 4) == 0:
                        marks.tags = value
                        marks.tags_len = <int> value_len
                    elif memcmp(p + i, b"KEYS", 4) == 0:
                        marks.keys = value
                        marks.keys_len = <int> value_len
                elif key_len == 8:
                    if memcmp(p + i, b"UNIQ_KEY", 8) == 0:
                        marks.uniq = value
                        marks.uniq_len = <int> value_len
                elif key_len == 5 and memcmp(p + i, b"DELAY", 5) == 0:
                    marks.delay = <int> max(0, decimal(value, value_len, 9))
                elif key_len == 9 and memcmp(p + i, b"INNER_NUM", 9) == 0:
                    marks.inner_num = <int> max(0, decimal(value, value_len, 9))
                elif key_len == 10 and memcmp(p + i, b"INNER_BASE", 10) == 0:
                    marks.inner_base = decimal(value, value_len, 18)
        i = end + 1


cdef dict decode_property_map(const uint8_t *p, Py_ssize_t n):
    """Encoded properties -> dict; entries with an empty key or value vanish, undecodable bytes are replaced."""
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t end
    cdef const uint8_t *hit
    cdef dict result = {}
    while i < n:
        hit = <const uint8_t *> memchr(p + i, 2, n - i)
        end = n if hit == NULL else hit - p
        hit = <const uint8_t *> memchr(p + i, 1, end - i)
        if hit != NULL and hit > p + i and hit + 1 < p + end:
            key = (<const char *> (p + i))[:hit - (p + i)].decode("utf-8", "replace")
            result[key] = (<const char *> (hit + 1))[:(p + end) - (hit + 1)].decode("utf-8", "replace")
        i = end + 1
    return result
