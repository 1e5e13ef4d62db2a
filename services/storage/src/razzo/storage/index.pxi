# Key index files as the writer sees them (sections 4.1, 4.2). The header is kept in C and copied to the mapping once a batch.

cdef enum:
    INDEX_HEADER_BYTES = 40
    SLOT_BYTES = 4


cdef struct IndexState:
    char *base
    int64_t begin_ms
    int64_t end_ms
    int64_t begin_physical
    int64_t end_physical
    int32_t slots_used
    int32_t count               # starts at 1; number of the next unit
    int32_t slots
    int32_t reserved_count      # units below this may be written


cdef inline int32_t key_hash(uint32_t java) noexcept nogil:
    """abs() of the Java hash; abs(-2^31) counts as 0."""
    if java == 0x80000000U:
        return 0
    return -<int32_t> java if <int32_t> java < 0 else <int32_t> java


cdef void put_key(IndexState *file, int32_t hash_value, int64_t physical_offset, int64_t store_ms) noexcept nogil:
    """One entry: unit, slot, counters. The caller saw to it that file.count < file.reserved_count."""
    cdef char *slot = file.base + INDEX_HEADER_BYTES + <int64_t> SLOT_BYTES * (hash_value % file.slots)
    cdef char *unit = file.base + INDEX_HEADER_BYTES + <int64_t> SLOT_BYTES * file.slots + <int64_t> UNIT_BYTES * file.count
    cdef int32_t previous = <int32_t> rz_get32(slot)
    cdef int64_t seconds = 0
    if previous <= 0 or previous > file.count:
        previous = 0
    if file.begin_ms > 0:
        seconds = (store_ms - file.begin_ms) // 1000
        if seconds < 0:
            seconds = 0
        elif seconds > 0x7FFFFFFF:
            seconds = 0x7FFFFFFF
    rz_put32(unit, hash_value)
    rz_put64(unit + 4, physical_offset)
    rz_put32(unit + 12, <uint32_t> seconds)
    rz_put32(unit + 16, previous)
    rz_put32(slot, file.count)
    if file.count <= 1:
        file.begin_ms = store_ms
        file.begin_physical = physical_offset
    if previous == 0:
        file.slots_used += 1
    file.count += 1
    file.end_ms = store_ms
    file.end_physical = physical_offset


cdef void put_index_header(IndexState *file) noexcept nogil:
    rz_put64(file.base, file.begin_ms)
    rz_put64(file.base + 8, file.end_ms)
    rz_put64(file.base + 16, file.begin_physical)
    rz_put64(file.base + 24, file.end_physical)
    rz_put32(file.base + 32, file.slots_used)
    rz_put32(file.base + 36, file.count)


cdef int32_t count_keys(const Marks *marks) noexcept nogil:
    """Entries a record makes: its UNIQ_KEY and each non-empty token of KEYS."""
    cdef int32_t total = 1 if marks.uniq_len else 0
    cdef int32_t i
    cdef bint inside = False
    for i in range(marks.keys_len):
        if marks.keys[i] == 32:
            inside = False
        elif not inside:
            inside = True
            total += 1
    return total


def index_header(MappedFile mapped not None):
    """(begin ms, end ms, begin physical, end physical, slots used, count) of a mapped index file."""
    cdef const char *p = mapped.base
    if mapped.size < INDEX_HEADER_BYTES:
        raise ValueError("an index file is at least 40 bytes long")
    return (<int64_t> rz_get64(p), <int64_t> rz_get64(p + 8), <int64_t> rz_get64(p + 16), <int64_t> rz_get64(p + 24),
            <int32_t> rz_get32(p + 32), <int32_t> rz_get32(p + 36))


def index_lookup(MappedFile mapped not None, int32_t slots, int32_t hash_value, int64_t begin_ms, int64_t end_ms, int limit):
    """Physical offsets of at most `limit` entries with this key hash stored in [begin_ms, end_ms], newest first (4.3)."""
    cdef const char *p = mapped.base
    cdef int64_t base_ms = <int64_t> rz_get64(p)
    cdef int32_t count = <int32_t> rz_get32(p + 36)
    cdef int64_t units_at = INDEX_HEADER_BYTES + <int64_t> SLOT_BYTES * slots
    cdef int64_t room = (mapped.size - units_at) // UNIT_BYTES
    cdef int32_t number = <int32_t> rz_get32(p + INDEX_HEADER_BYTES + <int64_t> SLOT_BYTES * (hash_value % slots))
    cdef int32_t steps = 0
    cdef int32_t previous
    cdef int64_t stored_ms
    cdef const char *unit
    result = []
    if count > room:
        count = <int32_t> room
    while 0 < number <= count and number < room and len(result) < limit and steps <= count:
        unit = p + units_at + <int64_t> UNIT_BYTES * number
        previous = <int32_t> rz_get32(unit + 16)
        stored_ms = base_ms + <int64_t> <int32_t> rz_get32(unit + 12) * 1000
        if <int32_t> rz_get32(unit) == hash_value and begin_ms <= stored_ms <= end_ms:
            result.append(<int64_t> rz_get64(unit + 4))
        # Seconds round down: an entry is older than begin for sure only a second further back.
        if stored_ms + 1000 <= begin_ms or previous == number:
            break
        number = previous
        steps += 1
    return result
