# Commit-log files the writer may write to.

cdef struct LogSegment:
    char *base
    int64_t start
    int64_t populated_end           # physical offset; bytes below may be written


cdef class LogSegments:
    """The file being written, then those ready to follow."""

    cdef LogSegment *items
    cdef int32_t count
    cdef int32_t room
    cdef list maps
    cdef int64_t file_bytes

    def __cinit__(self, int64_t file_bytes):
        self.file_bytes = file_bytes
        self.maps = []

    def __dealloc__(self):
        free(self.items)

    def add(self, MappedFile mapped not None, int64_t start, int64_t populated_end):
        cdef LogSegment *grown
        if self.count and start != self.items[self.count - 1].start + self.file_bytes:
            raise ValueError(f"segment {start} does not follow the last one")
        if self.count == self.room:
            grown = <LogSegment *> realloc(self.items, (self.room + 4) * sizeof(LogSegment))
            if grown == NULL:
                raise MemoryError
            self.items = grown
            self.room += 4
        self.items[self.count].base = mapped.base
        self.items[self.count].start = start
        self.items[self.count].populated_end = populated_end
        self.maps.append(mapped)
        self.count += 1

    def set_populated(self, int64_t start, int64_t populated_end):
        """Bytes of the segment at `start` below `populated_end` may be written."""
        cdef int32_t i
        for i in range(self.count):
            if self.items[i].start == start:
                self.items[i].populated_end = populated_end

    def drop(self):
        self.count = 0
        self.maps = []

    def keep_current(self, int64_t end):
        """Forget segments that are full; `end` is where the log ends."""
        cdef int32_t drop = 0
        cdef int32_t i
        while drop + 1 < self.count and self.items[drop].start + self.file_bytes <= end:
            drop += 1
        if drop:
            self.count -= drop
            for i in range(self.count):
                self.items[i] = self.items[i + drop]
            del self.maps[:drop]
