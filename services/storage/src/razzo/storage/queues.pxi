# Consume queues as the writer sees them (section 3.1), and the topic table.

cdef enum:
    UNIT_BYTES = 20
    BATCH_UNIT_BYTES = 46           # of a queue of inner batches (section 3.7); it begins like the other one
    FILLER_SIZE = 0x7FFFFFFF        # unit that stands for no message (section 3.2)
    QUEUE_ID_MAX = 65535


cdef struct QueueFile:
    char *base
    int64_t first_unit
    int64_t reserved_end            # units below this may be written: their blocks are reserved


cdef struct QueueState:
    # Units are counted from the queue's beginning. In an ordinary queue a unit is a queue offset; in one of inner batches
    # it stands for as many as the batch has messages.
    int64_t next                    # unit to be written next
    int64_t next_offset             # queue offset of the next message
    int64_t first                   # first unit that may be read
    int64_t readable                # units below this end at or below the confirm offset (a lower bound, moved by readers)
    int64_t planned                 # plan(): next unit inside the batch `batch`
    int64_t planned_offset          # plan(): next queue offset
    uint64_t batch
    int32_t unit_bytes
    bint batched                    # holds inner batches
    int64_t end_physical            # end of the record of the last unit
    int64_t units_per_file
    QueueFile *files                # files the writer may touch, contiguous, the last one newest
    int32_t file_count
    int32_t file_room
    bint dirty
    void *owner                     # the Queue object; it outlives this struct


cdef struct TopicState:
    uint8_t *name
    int32_t name_len
    uint32_t hash
    uint32_t key_prefix             # Java hash of "topic#", continued per key
    int64_t deleted_below           # see LogWriter.set_deleted
    bint scheduled                  # SCHEDULE_TOPIC_XXXX: tag code is the due time
    bint batched                    # some queue holds inner batches: nothing for send_wire.pxi
    QueueState **queues
    int32_t queue_room
    int32_t hot_queues              # send_wire.pxi: messages of this topic go to queues 0 to hot_queues - 1; 0: not there
    uint32_t hot_turn               # send_wire.pxi: next queue
    void *name_object               # interned str, owned by LogWriter.names


cdef inline void put_unit(char *at, int64_t physical_offset, int32_t size, int64_t tag_code) noexcept nogil:
    rz_put64(at, physical_offset)
    rz_put32(at + 8, size)
    rz_put64(at + 12, tag_code)


cdef inline void put_batch_unit(char *at, int64_t physical_offset, int32_t size, int64_t tag_code, int64_t store_ms,
                                int64_t base, int32_t count) noexcept nogil:
    put_unit(at, physical_offset, size, tag_code)
    rz_put64(at + 20, store_ms)
    rz_put64(at + 28, base)
    rz_put16(at + 36, count)
    rz_put32(at + 38, <uint32_t> -1)        # position after compaction: none
    rz_put32(at + 42, 0)


cdef inline char *unit_at(QueueState *queue, int64_t unit) noexcept nogil:
    """Address of a unit in the writer's files; the caller knows that it is reserved."""
    cdef QueueFile *file = &queue.files[(unit - queue.files[0].first_unit) // queue.units_per_file]
    return file.base + (unit - file.first_unit) * queue.unit_bytes


cdef class Queue:
    """One consume queue. Python decides about files; the numbers live in C so that a batch can be planned without Python.

    Attributes count units (see QueueState), but for `next_offset`; `end_physical` is the end of the last unit's record.
    """

    cdef QueueState *state
    cdef readonly str topic
    cdef readonly int queue_id
    cdef list mapped
    cdef public object files_of       # the ConsumeQueue that owns the files on disk

    def __cinit__(self, str topic, int queue_id, int64_t units_per_file, bint batched=False):
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            raise ValueError(f"queue id {queue_id} is not between 0 and {QUEUE_ID_MAX}")
        self.state = <QueueState *> calloc(1, sizeof(QueueState))
        if self.state == NULL:
            raise MemoryError
        self.state.units_per_file = units_per_file
        self.state.batched = batched
        self.state.unit_bytes = BATCH_UNIT_BYTES if batched else UNIT_BYTES
        self.state.owner = <void *> self
        self.topic = topic
        self.queue_id = queue_id
        self.mapped = []

    def __dealloc__(self):
        if self.state != NULL:
            free(self.state.files)
            free(self.state)

    @property
    def next(self):
        return self.state.next

    @property
    def next_offset(self):
        return self.state.next_offset

    @property
    def batched(self):
        return self.state.batched

    @property
    def first(self):
        return self.state.first

    @property
    def planned(self):
        return self.state.planned

    @property
    def end_physical(self):
        return self.state.end_physical

    @property
    def reserved_end(self):
        return self.state.files[self.state.file_count - 1].reserved_end if self.state.file_count else 0

    @property
    def last_file_first_unit(self):
        """First unit of the newest mapped file; -1 without files."""
        return self.state.files[self.state.file_count - 1].first_unit if self.state.file_count else -1

    @property
    def file_count(self):
        return self.state.file_count

    def place(self, int64_t first, int64_t next, int64_t end_physical, int64_t next_offset=-1):
        """Set the numbers (at load, after a cut, after retention); next_offset is `next` in an ordinary queue."""
        self.state.first = first
        self.state.next = next
        self.state.next_offset = next_offset if self.state.batched else next
        self.state.end_physical = end_physical
        self.state.readable = next

    def set_first(self, int64_t first):
        self.state.first = first
        if self.state.readable < first:
            self.state.readable = first

    def add_file(self, MappedFile mapped, int64_t first_unit, int64_t reserved_end):
        """Make a file writable for the writer; files come in order without gaps."""
        cdef QueueState *state = self.state
        cdef QueueFile *grown
        if state.file_count and first_unit != state.files[state.file_count - 1].first_unit + state.units_per_file:
            raise ValueError(f"queue file at unit {first_unit} does not follow the last one")
        if state.file_count == state.file_room:
            grown = <QueueFile *> realloc(state.files, (state.file_room + 4) * sizeof(QueueFile))
            if grown == NULL:
                raise MemoryError
            state.files = grown
            state.file_room += 4
        state.files[state.file_count].base = mapped.base
        state.files[state.file_count].first_unit = first_unit
        state.files[state.file_count].reserved_end = reserved_end
        self.mapped.append(mapped)
        state.file_count += 1

    def set_reserved(self, int64_t reserved_end):
        """Blocks of the newest file are reserved up to this unit."""
        self.state.files[self.state.file_count - 1].reserved_end = reserved_end

    def keep_newest(self):
        """Drop files that are full and readable to the end; what is not readable yet is looked up in them."""
        cdef QueueState *state = self.state
        cdef int32_t drop = 0
        while drop + 1 < state.file_count and state.files[drop].first_unit + state.units_per_file <= state.readable:
            drop += 1
        if drop:
            state.file_count -= drop
            for i in range(state.file_count):
                state.files[i] = state.files[i + drop]
            del self.mapped[:drop]

    def drop_files(self):
        self.state.file_count = 0
        self.mapped = []

    def mapped_at(self, int64_t unit):
        """(MappedFile, first unit) of the writer's file holding `unit`, or None: then it is an older file."""
        cdef int i
        for i in range(self.state.file_count):
            if self.state.files[i].first_unit <= unit < self.state.files[i].first_unit + self.state.units_per_file:
                return self.mapped[i], self.state.files[i].first_unit
        return None

    def put_fillers(self, int64_t first_unit, int64_t end_unit):
        """Write filler units (phy 0, size 2^31-1, tag 0) at [first_unit, end_unit); they must be reserved."""
        cdef int64_t unit
        for unit in range(first_unit, end_unit):
            put_unit(unit_at(self.state, unit), 0, FILLER_SIZE, 0)

    def take_dirty(self):
        """True once after units were written since the last call."""
        cdef bint dirty = self.state.dirty
        self.state.dirty = False
        return dirty

    def readable_end(self, int64_t confirm):
        """Queue offset below which every unit's record ends at or below `confirm`."""
        cdef QueueState *state = self.state
        cdef const char *at
        cdef int64_t unit
        cdef int64_t low
        cdef int64_t high
        if state.end_physical <= confirm or state.file_count == 0:
            state.readable = state.next
            return state.next
        low = state.readable
        if low < state.files[0].first_unit:
            low = state.files[0].first_unit
        high = state.next
        while low < high:
            unit = low + (high - low) // 2
            at = unit_at(state, unit)
            if <int32_t> rz_get32(at + 8) == FILLER_SIZE or \
                    <int64_t> rz_get64(at) + <int32_t> rz_get32(at + 8) <= confirm:
                low = unit + 1
            else:
                high = unit
        state.readable = low
        return low


cdef int64_t live_units(const char *base, int64_t count, int32_t unit_bytes) noexcept nogil:
    """Number of leading units with phy >= 0 and size > 0 and, in a queue of inner batches, base >= 0 and count > 0 (3.3)."""
    cdef int64_t unit
    cdef const char *at
    for unit in range(count):
        at = base + unit * unit_bytes
        if <int64_t> rz_get64(at) < 0 or <int32_t> rz_get32(at + 8) <= 0:
            return unit
        if unit_bytes == BATCH_UNIT_BYTES and (<int64_t> rz_get64(at + 28) < 0 or <int16_t> rz_get16(at + 36) <= 0):
            return unit
    return count


cdef const char *unit_in(MappedFile mapped, int64_t index, int64_t count, int32_t unit_bytes) except NULL:
    """Address of unit `index` of a mapped queue file that holds at least `count` from there on."""
    if index < 0 or count < 0 or (index + count) * unit_bytes > mapped.size:
        raise IndexError(f"units {index}..{index + count} are outside the file")
    return mapped.base + index * unit_bytes


def count_live_units(MappedFile mapped not None, int64_t count, int32_t unit_bytes):
    cdef int64_t result
    unit_in(mapped, 0, count, unit_bytes)
    with nogil:
        result = live_units(mapped.base, count, unit_bytes)
    return result


def unit_of(MappedFile mapped not None, int64_t index, int32_t unit_bytes):
    """(physical offset, size, tag code) of unit `index` of a mapped queue file."""
    cdef const char *at = unit_in(mapped, index, 1, unit_bytes)
    return <int64_t> rz_get64(at), <int32_t> rz_get32(at + 8), <int64_t> rz_get64(at + 12)


def inner_range(MappedFile mapped not None, int64_t index):
    """(first queue offset, number of messages) of unit `index` of a mapped file of inner batches."""
    cdef const char *at = unit_in(mapped, index, 1, BATCH_UNIT_BYTES)
    return <int64_t> rz_get64(at + 28), <int16_t> rz_get16(at + 36)


def units_of(MappedFile mapped not None, int64_t index, int64_t count, int32_t unit_bytes):
    """List of (physical offset, size, tag code)."""
    cdef int64_t i
    cdef const char *at = unit_in(mapped, index, count, unit_bytes)
    result = []
    for i in range(count):
        result.append((<int64_t> rz_get64(at), <int32_t> rz_get32(at + 8), <int64_t> rz_get64(at + 12)))
        at += unit_bytes
    return result


def first_unit_from(MappedFile mapped not None, int64_t count, int64_t physical_offset, int32_t unit_bytes):
    """Index of the first of `count` units whose record starts at or above physical_offset (fillers count as below)."""
    cdef int64_t low = 0
    cdef int64_t high = count
    cdef int64_t middle
    cdef const char *at
    while low < high:
        middle = low + (high - low) // 2
        at = mapped.base + middle * unit_bytes
        if <int64_t> rz_get64(at) < physical_offset or <int32_t> rz_get32(at + 8) == FILLER_SIZE:
            low = middle + 1
        else:
            high = middle
    return low
