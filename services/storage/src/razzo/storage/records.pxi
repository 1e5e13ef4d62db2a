# Commit-log records (sections 2.1, 2.2, 2.4, 2.5).

cdef extern from "libdeflate.h" nogil:
    uint32_t libdeflate_crc32(uint32_t crc, const void *buffer, size_t length)

cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194
    BLANK_BYTES = 8
    FIXED_BYTES = 75                # everything but hosts, topic, body, properties; V1's one-byte topic length included
    CRC_PROPERTY_BYTES = 20         # "__CRC32#" 0x01 ten digits 0x02
    FLAG_TRANSACTION = 0xC
    FLAG_PREPARED = 0x4
    FLAG_ROLLBACK = 0xC
    FLAG_BORN_V6 = 0x10
    FLAG_STORE_V6 = 0x20
    FLAG_NEED_UNWRAP = 0x40
    FLAG_INNER_BATCH = 0x80
    BASE_PROPERTY_BYTES = 12        # "INNER_BASE" 0x01 (digits) 0x02
    BASE_DIGITS_MAX = 19
    INNER_MESSAGES_MAX = 32767      # the count is a signed short
    HOST_V4 = 8
    HOST_V6 = 20
    TOPIC_V1_BYTES = 127
    TOPIC_BYTES = 255               # longest topic the store takes (%RETRY% and %DLQ% names)


cdef struct Prepared:
    # --- what a producer fills (pointers stay valid until run() returns a result)
    const uint8_t *topic
    const uint8_t *body
    const uint8_t *properties
    const uint8_t *born_host
    int32_t topic_len
    int32_t body_len
    int32_t properties_len
    int32_t born_host_len           # 0 (unknown), 8 or 20
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_ms
    int64_t prepared_offset
    # --- what prepare() fills
    Marks marks
    int32_t size                    # whole record
    int32_t stored_properties_len   # with what the store adds: separator, INNER_BASE, CRC property
    int32_t inner_count             # messages of an inner batch (2.7); 0: an ordinary record
    int32_t base_digits             # of INNER_BASE; the sizes count this many
    bint separated                  # a terminator is missing between the properties and what the store adds
    bint has_unit                   # transaction type none or commit
    # --- what plan() fills
    TopicState *topic_state
    QueueState *queue
    int64_t unit
    int64_t queue_offset
    int64_t physical_offset


cdef struct Shape:
    # Where things are inside one stored record; offsets from its first byte.
    int32_t size
    int32_t born_host
    int32_t store_time
    int32_t store_host
    int32_t body
    int32_t body_len
    int32_t topic
    int32_t topic_len
    int32_t properties
    int32_t properties_len


cdef void encode_record(char *out, const Prepared *item, int64_t store_ms, const uint8_t *store_host, int32_t store_host_len,
                        bint crc_property) noexcept nogil:
    """Write one record of item.size bytes at `out`; the size word goes first so that a torn write is seen as torn."""
    cdef int32_t sys_flag = item.sys_flag & ~(FLAG_BORN_V6 | FLAG_STORE_V6)
    cdef int32_t born_len = HOST_V6 if item.born_host_len == HOST_V6 else HOST_V4
    cdef bint wide = item.topic_len > TOPIC_V1_BYTES
    cdef char *p = out
    cdef int32_t body_crc = 0
    if born_len == HOST_V6:
        sys_flag |= FLAG_BORN_V6
    if store_host_len == HOST_V6:
        sys_flag |= FLAG_STORE_V6
    if item.body_len:
        body_crc = libdeflate_crc32(0, item.body, item.body_len) & 0x7FFFFFFF
    rz_put32(p, item.size)
    rz_put32(p + 4, MAGIC_V2 if wide else MAGIC_V1)
    rz_put32(p + 8, body_crc)
    rz_put32(p + 12, item.queue_id)
    rz_put32(p + 16, item.flag)
    rz_put64(p + 20, item.queue_offset)
    rz_put64(p + 28, item.physical_offset)
    rz_put32(p + 36, sys_flag)
    rz_put64(p + 40, item.born_ms)
    p += 48
    if item.born_host_len:
        memcpy(p, item.born_host, born_len)
    else:
        memset(p, 0, born_len)
    p += born_len
    rz_put64(p, store_ms)
    memcpy(p + 8, store_host, store_host_len)
    p += 8 + store_host_len
    rz_put32(p, item.reconsume_times)
    rz_put64(p + 4, item.prepared_offset)
    rz_put32(p + 12, item.body_len)
    p += 16
    memcpy(p, item.body, item.body_len)
    p += item.body_len
    if wide:
        rz_put16(p, item.topic_len)
        p += 2
    else:
        p[0] = <char> item.topic_len
        p += 1
    memcpy(p, item.topic, item.topic_len)
    p += item.topic_len
    rz_put16(p, item.stored_properties_len)
    p += 2
    memcpy(p, item.properties, item.properties_len)
    p += item.properties_len
    if item.separated:
        p[0] = 2
        p += 1
    if item.inner_count:
        p = put_base_property(p, item.queue_offset, item.base_digits)
    if crc_property:
        put_crc_property(out, p)


cdef void write_out_base(Prepared *item) noexcept nogil:
    """Make the sizes of an inner batch fit the digits of its queue offset."""
    cdef int32_t digits = 1
    cdef int64_t rest = item.queue_offset // 10
    while rest:
        digits += 1
        rest //= 10
    item.stored_properties_len += digits - item.base_digits
    item.size += digits - item.base_digits
    item.base_digits = digits


cdef char *put_base_property(char *p, int64_t queue_offset, int32_t digits) noexcept nogil:
    cdef int32_t i
    memcpy(p, b"INNER_BASE\x01", 11)
    p += 11
    for i in range(digits - 1, -1, -1):
        p[i] = 48 + queue_offset % 10
        queue_offset //= 10
    p[digits] = 2
    return p + digits + 1


cdef void put_crc_property(char *out, char *p) noexcept nogil:
    """Section 2.4: `__CRC32#`, ten digits least significant first, terminator; the checksum of all before it."""
    cdef uint32_t crc = libdeflate_crc32(0, out, p - out) & 0x7FFFFFFF
    cdef int i
    memcpy(p, b"__CRC32#", 8)
    p[8] = 1
    for i in range(10):
        p[9 + i] = 48 + crc % 10
        crc //= 10
    p[19] = 2


cdef void put_blank(char *out, int32_t left) noexcept nogil:
    rz_put32(out, left)
    rz_put32(out + 4, MAGIC_BLANK)


cdef enum RecordCheck:
    RECORD_OK = 0
    RECORD_BLANK = 1        # end-of-file marker: go on in the next file
    RECORD_ZERO = 2         # never written
    RECORD_SHORT = 3        # claims more bytes than there are
    RECORD_MAGIC = 4        # not a record
    RECORD_CRC = 5          # body does not match its checksum
    RECORD_SIZES = 6        # parts do not add up to the whole
    RECORD_PLACE = 7        # stored physical offset is not where it stands
    RECORD_TORN = 8         # its last bytes are zeros
    RECORD_TOPIC = 9        # its topic cannot name a folder


cdef RecordCheck shape_of(const char *p, int64_t left, Shape *shape) noexcept nogil:
    """Bounds of every part of the record at p with `left` readable bytes; RECORD_OK means all of them lie inside it."""
    cdef int64_t size
    cdef int64_t at
    cdef uint32_t magic
    cdef uint32_t sys_flag
    cdef int64_t length
    if left < 8:
        return RECORD_SHORT
    size = <int32_t> rz_get32(p)
    magic = rz_get32(p + 4)
    if magic == MAGIC_BLANK:
        return RECORD_BLANK
    if magic == 0 and size == 0:
        return RECORD_ZERO
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return RECORD_MAGIC
    if size > left:
        return RECORD_SHORT
    if size < FIXED_BYTES + 2 * HOST_V4:
        return RECORD_SIZES
    sys_flag = rz_get32(p + 36)
    shape.size = <int32_t> size
    shape.born_host = 48
    at = 48 + (HOST_V6 if sys_flag & FLAG_BORN_V6 else HOST_V4)
    shape.store_time = <int32_t> at
    shape.store_host = <int32_t> (at + 8)
    at += 8 + (HOST_V6 if sys_flag & FLAG_STORE_V6 else HOST_V4)
    at += 12
    if at + 4 > size:
        return RECORD_SIZES
    length = <int32_t> rz_get32(p + at)
    at += 4
    if length < 0 or at + length + 1 > size:
        return RECORD_SIZES
    shape.body = <int32_t> at
    shape.body_len = <int32_t> length
    at += length
    if magic == MAGIC_V2:
        if at + 2 > size:
            return RECORD_SIZES
        length = <int16_t> rz_get16(p + at)
        at += 2
    else:
        length = <signed char> p[at]
        at += 1
    if length < 0 or at + length + 2 > size:
        return RECORD_SIZES
    shape.topic = <int32_t> at
    shape.topic_len = <int32_t> length
    at += length
    length = <int16_t> rz_get16(p + at)
    at += 2
    shape.properties = <int32_t> at
    shape.properties_len = <int32_t> length
    if length < 0 or at + length != size:
        return RECORD_SIZES
    return RECORD_OK


cdef bint names_folder(const uint8_t *s, Py_ssize_t n) noexcept nogil:
    """Whether a topic can name its queues' folder: 1 to 255 bytes of UTF-8 without NUL and "/", and not "." or ".."."""
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t after
    cdef uint32_t unused = 0
    if not 0 < n <= TOPIC_BYTES or (s[0] == 46 and (n == 1 or (n == 2 and s[1] == 46))):
        return False
    while i < n:
        if s[i] == 0 or s[i] == 47:
            return False
        if s[i] < 0x80:
            i += 1
        else:
            after = hash_wide(&unused, s, i, n)
            if after == i + 1:
                return False
            i = after
    return True


cdef RecordCheck verify_record(const char *p, int64_t left, int64_t physical_offset, bint check_crc,
                               Shape *shape) noexcept nogil:
    """What recovery asks of a record. Apache does not compare the stored physical offset; we do, so that bytes left over
    from another place or another store are never taken for records."""
    cdef RecordCheck found = shape_of(p, left, shape)
    if found != RECORD_OK:
        return found
    if <int64_t> rz_get64(p + 28) != physical_offset:
        return RECORD_PLACE
    # No checksum covers the topic; noise in it must not become a folder.
    if not names_folder(<const uint8_t *> p + shape.topic, shape.topic_len):
        return RECORD_TOPIC
    # The end of a record that never reached the disk reads as zeros, and no checksum covers it; writers never end in one.
    if shape.properties_len:
        if p[shape.size - 1] == 0:
            return RECORD_TORN
    elif shape.topic_len and p[shape.topic + shape.topic_len - 1] == 0:
        return RECORD_TORN
    if check_crc and shape.body_len:
        if (libdeflate_crc32(0, p + shape.body, shape.body_len) & 0x7FFFFFFF) != rz_get32(p + 8):
            return RECORD_CRC
    return RECORD_OK
