# Big-endian integers (Java ByteBuffer order), Java's String.hashCode over UTF-8 input, SipHash-2-4.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline void rz_put16(char *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void rz_put32(char *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void rz_put64(char *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    static inline uint16_t rz_get16(const char *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t rz_get32(const char *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t rz_get64(const char *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline uint64_t rz_le64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
    static inline uint64_t rz_rotl(uint64_t x, int b) { return (x << b) | (x >> (64 - b)); }
    """
    void rz_put16(char *p, uint16_t v) noexcept nogil
    void rz_put32(char *p, uint32_t v) noexcept nogil
    void rz_put64(char *p, uint64_t v) noexcept nogil
    uint16_t rz_get16(const char *p) noexcept nogil
    uint32_t rz_get32(const char *p) noexcept nogil
    uint64_t rz_get64(const char *p) noexcept nogil
    uint64_t rz_le64(const uint8_t *p) noexcept nogil
    uint64_t rz_rotl(uint64_t x, int b) noexcept nogil


cdef Py_ssize_t hash_wide(uint32_t *h, const uint8_t *s, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """Fold one non-ASCII code point at s[i] into *h as UTF-16 units; malformed bytes count as U+FFFD, as Java decodes them."""
    cdef uint32_t c = s[i]
    cdef uint32_t point = 0xFFFD
    cdef Py_ssize_t width = 1
    if 0xC2 <= c <= 0xDF and i + 1 < n and (s[i + 1] & 0xC0) == 0x80:
        point = ((c & 0x1F) << 6) | (s[i + 1] & 0x3F)
        width = 2
    elif (c & 0xF0) == 0xE0 and i + 2 < n and (s[i + 1] & 0xC0) == 0x80 and (s[i + 2] & 0xC0) == 0x80:
        point = ((c & 0x0F) << 12) | ((<uint32_t> (s[i + 1] & 0x3F)) << 6) | (s[i + 2] & 0x3F)
        if point < 0x800 or 0xD800 <= point <= 0xDFFF:
            point = 0xFFFD
        else:
            width = 3
    elif (0xF0 <= c <= 0xF4 and i + 3 < n and (s[i + 1] & 0xC0) == 0x80 and (s[i + 2] & 0xC0) == 0x80
          and (s[i + 3] & 0xC0) == 0x80):
        point = (((c & 0x07) << 18) | ((<uint32_t> (s[i + 1] & 0x3F)) << 12)
                 | ((<uint32_t> (s[i + 2] & 0x3F)) << 6) | (s[i + 3] & 0x3F))
        if point < 0x10000 or point > 0x10FFFF:
            point = 0xFFFD
        else:
            width = 4
    if point >= 0x10000:
        h[0] = h[0] * 31 + (0xD800 + ((point - 0x10000) >> 10))
        h[0] = h[0] * 31 + (0xDC00 + ((point - 0x10000) & 0x3FF))
    else:
        h[0] = h[0] * 31 + point
    return i + width


cdef uint32_t java_hash(uint32_t h, const uint8_t *s, Py_ssize_t n) noexcept nogil:
    """Continue Java's `h = 31*h + unit` from `h` over UTF-8 text; the result's bits are the signed Java int."""
    cdef Py_ssize_t i = 0
    while i < n:
        if s[i] < 0x80:
            h = h * 31 + s[i]
            i += 1
        else:
            i = hash_wide(&h, s, i, n)
    return h


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = rz_rotl(v[1], 13) ^ v[0]
    v[0] = rz_rotl(v[0], 32)
    v[2] += v[3]
    v[3] = rz_rotl(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rz_rotl(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rz_rotl(v[1], 17) ^ v[2]
    v[2] = rz_rotl(v[2], 32)


cdef uint64_t sip24(const uint8_t *key, const uint8_t *data, Py_ssize_t n) noexcept nogil:
    """SipHash-2-4 (Aumasson and Bernstein, 2012): 16-byte key, any data, 64-bit result."""
    cdef uint64_t k0 = rz_le64(key)
    cdef uint64_t k1 = rz_le64(key + 8)
    cdef uint64_t v[4]
    cdef uint64_t m
    cdef Py_ssize_t i = 0
    cdef int j
    v[0] = k0 ^ 0x736F6D6570736575ULL
    v[1] = k1 ^ 0x646F72616E646F6DULL
    v[2] = k0 ^ 0x6C7967656E657261ULL
    v[3] = k1 ^ 0x7465646279746573ULL
    while i + 8 <= n:
        m = rz_le64(data + i)
        v[3] ^= m
        sip_round(v)
        sip_round(v)
        v[0] ^= m
        i += 8
    m = (<uint64_t> (n & 0xFF)) << 56
    for j in range(n - i):
        m |= (<uint64_t> data[i + j]) << (8 * j)
    v[3] ^= m
    sip_round(v)
    sip_round(v)
    v[0] ^= m
    v[2] ^= 0xFF
    for j in range(4):
        sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
