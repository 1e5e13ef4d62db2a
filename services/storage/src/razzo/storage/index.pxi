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

cdef class IndexFiles:
    """The index file being written, then those ready to follow."""

    cdef IndexState *items
    cdef int32_t count
    cdef list maps

    def __cinit__(self):
        self.maps = []

    def __dealloc__(self):
        free(self.items)

    def add(self, MappedFile mapped not None, int32_t slots, int32_t reserved_count):
        """The index file to write to next; its header is read from the mapping."""
        cdef IndexState *grown = <IndexState *> realloc(self.items, (self.count + 1) * sizeof(IndexState))
        cdef IndexState *file
        cdef const char *p = mapped.base
        if grown == NULL:
            raise MemoryError
        self.items = grown
        file = &self.items[self.count]
        file.base = mapped.base
        file.begin_ms = <int64_t> rz_get64(p)
        file.end_ms = <int64_t> rz_get64(p + 8)
        file.begin_physical = <int64_t> rz_get64(p + 16)
        file.end_physical = <int64_t> rz_get64(p + 24)
        file.slots_used = <int32_t> rz_get32(p + 32)
        file.count = <int32_t> rz_get32(p + 36)
        if file.count < 1:
            file.count = 1
        file.slots = slots
        file.reserved_count = reserved_count
        self.maps.append(mapped)
        self.count += 1

    def set_reserved(self, int32_t reserved_count):
        if self.count:
            self.items[self.count - 1].reserved_count = reserved_count

    def room(self):
        """(entries that fit the index files at hand, unit number and reserved_count of the newest) ; (0, 0, 0) without."""
        cdef int64_t room = 0
        cdef int32_t i
        if self.count == 0:
            return 0, 0, 0
        for i in range(self.count):
            room += self.items[i].reserved_count - self.items[i].count
        return room, self.items[self.count - 1].count, self.items[self.count - 1].reserved_count

    def keep_newest(self):
        """Drop full index files but the newest; returns how many were dropped."""
        cdef int32_t drop = 0
        cdef int32_t i
        while drop + 1 < self.count and self.items[drop].count >= self.items[drop].reserved_count:
            drop += 1
        if drop:
            self.count -= drop
            for i in range(self.count):
                self.items[i] = self.items[i + drop]
            del self.maps[:drop]
        return drop

    def drop(self):
        self.count = 0
        self.maps = []

    cdef int64_t free_entries(self) noexcept nogil:
        cdef int64_t room = 0
        cdef int32_t i
        for i in range(self.count):
            room += self.items[i].reserved_count - self.items[i].count
        return room

    cdef void put_headers(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.count):
            put_index_header(&self.items[i])

    cdef void put_keys(self, TopicState *topic, const Marks *marks, int64_t physical_offset, int64_t store_ms) noexcept nogil:
        """UNIQ_KEY first, then the tokens of KEYS (4.2)."""
        cdef int32_t i = 0
        cdef int32_t start
        if marks.uniq_len:
            self.put(key_hash(java_hash(topic.key_prefix, marks.uniq, marks.uniq_len)), physical_offset, store_ms)
        while i < marks.keys_len:
            if marks.keys[i] == 32:
                i += 1
                continue
            start = i
            while i < marks.keys_len and marks.keys[i] != 32:
                i += 1
            self.put(key_hash(java_hash(topic.key_prefix, marks.keys + start, i - start)), physical_offset, store_ms)

    cdef inline void put(self, int32_t hash_value, int64_t physical_offset, int64_t store_ms) noexcept nogil:
        cdef int32_t i = 0
        while i + 1 < self.count and self.items[i].count >= self.items[i].reserved_count:
            i += 1
        put_key(&self.items[i], hash_value, physical_offset, store_ms)


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
