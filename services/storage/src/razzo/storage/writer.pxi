# LogWriter: plan a whole batch without touching anything, then write it. A plan that lacks something (a segment, blocks, a
# queue, an index file) returns a NEED_ code; Python provides it (or raises DiskFull) and calls run() again.

cdef extern from *:
    """
    static PyObject *rz_tuple4(PyObject *kind, long long a, long long b, long long c, PyObject *d) {
        PyTypeObject *type = (PyTypeObject *) kind;
        PyObject *t = type->tp_alloc(type, 4);
        PyObject *x;
        if (t == NULL) return NULL;
        if ((x = PyLong_FromLongLong(a)) == NULL) { Py_DECREF(t); return NULL; }
        PyTuple_SET_ITEM(t, 0, x);
        if ((x = PyLong_FromLongLong(b)) == NULL) { Py_DECREF(t); return NULL; }
        PyTuple_SET_ITEM(t, 1, x);
        if ((x = PyLong_FromLongLong(c)) == NULL) { Py_DECREF(t); return NULL; }
        PyTuple_SET_ITEM(t, 2, x);
        Py_INCREF(d);
        PyTuple_SET_ITEM(t, 3, d);
        return t;
    }
    """
    object rz_tuple4(PyObject *type, long long a, long long b, long long c, object d)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    int PyTuple_Check(object o)
    long long PyLong_AsLongLong(object o) except? -1

cdef enum:
    DONE_ = 0
    NEED_QUEUE_ = 1
    NEED_UNITS_ = 2
    NEED_SEGMENT_ = 3
    NEED_PAGES_ = 4
    NEED_INDEX_ = 5
    NEED_START_ = 6
    RELEASE_GIL_BYTES = 32768       # smaller batches are written faster than a lock changes hands

DONE = DONE_
NEED_QUEUE = NEED_QUEUE_            # `needed`: (topic, queue id) to create
NEED_UNITS = NEED_UNITS_            # `needed`: Queue whose reserved_end must grow above its `planned`
NEED_SEGMENT = NEED_SEGMENT_        # one more segment after the last
NEED_PAGES = NEED_PAGES_            # `needed`: end of the segment bytes that must be populated, counted in the whole log
NEED_INDEX = NEED_INDEX_            # `needed`: index entries the batch makes
NEED_START = NEED_START_            # recovery only, see dispatch()


cdef struct LogSegment:
    char *base
    int64_t start
    int64_t populated_end           # physical offset; bytes below may be written


class TooLarge(ValueError):
    """A message breaks a size limit; the store re-raises it as MessageTooLarge."""


cdef class LogWriter:
    cdef Prepared *items
    cdef Py_ssize_t count           # items in the batch under way
    cdef Py_ssize_t room
    cdef LogSegment *segments       # the one being written, then those ready to follow
    cdef int32_t segment_count
    cdef int32_t segment_room
    cdef list segment_maps
    cdef int64_t file_bytes
    cdef int64_t end                # physical offset of the next record
    cdef int64_t last_store_ms
    cdef int64_t now_ms
    cdef uint64_t batch
    cdef TopicState **table         # open addressing, power of two
    cdef int64_t table_size
    cdef int64_t table_used
    cdef dict names                 # str -> Queue objects by id: keeps every QueueState alive
    cdef IndexState *indexes
    cdef int32_t index_count
    cdef list index_maps
    cdef bint index_enabled
    cdef bint crc_property
    cdef int64_t body_max
    cdef int64_t properties_max
    cdef bytes store_host
    cdef int32_t store_host_len
    cdef const uint8_t *host        # bytes of store_host
    cdef int64_t delays[64]
    cdef int delay_count
    cdef object appended
    cdef object batch_held          # the batch of a run() that asked for something
    cdef readonly object needed
    cdef TopicState *last_topic     # most batches stay on one topic
    cdef dict dirty_queues          # Queue -> None, since the last take_dirty_queues()
    cdef QueueState **touched       # queues of the batch under way
    cdef Py_ssize_t touched_count
    cdef Py_ssize_t touched_room
    cdef readonly int64_t records_total
    cdef readonly int64_t bytes_total
    cdef Py_ssize_t need_at         # item the plan stopped at
    cdef QueueState *needed_queue
    cdef readonly int64_t dispatched_units
    cdef readonly int64_t dispatched_keys
    cdef int64_t need_end           # pages: physical end; index: entries

    def __cinit__(self, *, int64_t file_bytes, int64_t body_max, int64_t properties_max, bytes store_host not None,
                  bint crc_property, bint index_enabled, delays, appended):
        if len(store_host) not in (HOST_V4, HOST_V6):
            raise ValueError(f"a packed host has 8 or 20 bytes, not {len(store_host)}")
        if len(delays) > 63:
            raise ValueError("at most 63 delay levels")
        self.file_bytes = file_bytes
        self.body_max = body_max
        self.properties_max = properties_max
        self.store_host = store_host
        self.host = <const uint8_t *> PyBytes_AS_STRING(store_host)
        self.store_host_len = <int32_t> len(store_host)
        self.crc_property = crc_property
        self.index_enabled = index_enabled
        self.delay_count = len(delays)
        for i, delay in enumerate(delays):
            self.delays[i] = delay
        self.appended = appended
        self.names = {}
        self.segment_maps = []
        self.index_maps = []
        self.dirty_queues = {}
        self.table_size = 1024
        self.table = <TopicState **> calloc(self.table_size, sizeof(TopicState *))
        self.indexes = <IndexState *> calloc(1, sizeof(IndexState))
        if self.table == NULL or self.indexes == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t i
        if self.table != NULL:
            for i in range(self.table_size):
                if self.table[i] != NULL:
                    free(self.table[i].name)
                    free(self.table[i].queues)
                    free(self.table[i])
            free(self.table)
        free(self.items)
        free(self.segments)
        free(self.indexes)
        free(self.touched)

    # --- what Python provides -------------------------------------------------------------------------------------

    @property
    def end_physical(self):
        return self.end

    @property
    def last_store_time_ms(self):
        return self.last_store_ms

    def set_end(self, int64_t end, int64_t last_store_ms):
        """Where the next record goes (after recovery or a cut)."""
        self.end = end
        self.last_store_ms = last_store_ms

    def add_segment(self, MappedFile mapped not None, int64_t start, int64_t populated_end):
        cdef LogSegment *grown
        if self.segment_count and start != self.segments[self.segment_count - 1].start + self.file_bytes:
            raise ValueError(f"segment {start} does not follow the last one")
        if self.segment_count == self.segment_room:
            grown = <LogSegment *> realloc(self.segments, (self.segment_room + 4) * sizeof(LogSegment))
            if grown == NULL:
                raise MemoryError
            self.segments = grown
            self.segment_room += 4
        self.segments[self.segment_count].base = mapped.base
        self.segments[self.segment_count].start = start
        self.segments[self.segment_count].populated_end = populated_end
        self.segment_maps.append(mapped)
        self.segment_count += 1

    def set_populated(self, int64_t start, int64_t populated_end):
        """Bytes of the segment at `start` below `populated_end` may be written."""
        cdef int32_t i
        for i in range(self.segment_count):
            if self.segments[i].start == start:
                self.segments[i].populated_end = populated_end

    def drop_segments(self):
        self.segment_count = 0
        self.segment_maps = []

    def keep_current_segments(self):
        """Forget segments that are full."""
        cdef int32_t drop = 0
        cdef int32_t i
        while drop + 1 < self.segment_count and self.segments[drop].start + self.file_bytes <= self.end:
            drop += 1
        if drop:
            self.segment_count -= drop
            for i in range(self.segment_count):
                self.segments[i] = self.segments[i + drop]
            del self.segment_maps[:drop]

    def add_index(self, MappedFile mapped not None, int32_t slots, int32_t reserved_count):
        """The index file to write to next; its header is read from the mapping."""
        cdef IndexState *grown = <IndexState *> realloc(self.indexes, (self.index_count + 1) * sizeof(IndexState))
        cdef IndexState *file
        cdef const char *p = mapped.base
        if grown == NULL:
            raise MemoryError
        self.indexes = grown
        file = &self.indexes[self.index_count]
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
        self.index_maps.append(mapped)
        self.index_count += 1

    def set_index_reserved(self, int32_t reserved_count):
        if self.index_count:
            self.indexes[self.index_count - 1].reserved_count = reserved_count

    def index_room(self):
        """(entries that fit the index files at hand, unit number and reserved_count of the newest) ; (0, 0, 0) without."""
        cdef int64_t room = 0
        cdef int32_t i
        if self.index_count == 0:
            return 0, 0, 0
        for i in range(self.index_count):
            room += self.indexes[i].reserved_count - self.indexes[i].count
        return room, self.indexes[self.index_count - 1].count, self.indexes[self.index_count - 1].reserved_count

    def keep_newest_index(self):
        """Drop full index files but the newest; returns how many were dropped."""
        cdef int32_t drop = 0
        cdef int32_t i
        while drop + 1 < self.index_count and self.indexes[drop].count >= self.indexes[drop].reserved_count:
            drop += 1
        if drop:
            self.index_count -= drop
            for i in range(self.index_count):
                self.indexes[i] = self.indexes[i + drop]
            del self.index_maps[:drop]
        return drop

    def drop_indexes(self):
        self.index_count = 0
        self.index_maps = []

    def add_queue(self, Queue queue not None):
        """Enter a queue into the topic table."""
        cdef TopicState *topic = self.topic_state(queue.topic)
        cdef QueueState **grown
        cdef int32_t room
        if queue.queue_id >= topic.queue_room:
            room = max(queue.queue_id + 1, min(2 * topic.queue_room, QUEUE_ID_MAX + 1))
            grown = <QueueState **> realloc(topic.queues, room * sizeof(QueueState *))
            if grown == NULL:
                raise MemoryError
            memset(grown + topic.queue_room, 0, (room - topic.queue_room) * sizeof(QueueState *))
            topic.queues = grown
            topic.queue_room = room
        topic.queues[queue.queue_id] = queue.state
        self.names.setdefault(queue.topic, {})[queue.queue_id] = queue

    def remove_topic(self, str topic not None):
        """Forget all queues of a topic; returns them."""
        cdef TopicState *state
        removed = list(self.names.pop(topic, {}).values())
        if removed:
            state = self.topic_state(topic)
            memset(state.queues, 0, state.queue_room * sizeof(QueueState *))
            state.hot_queues = 0
            for queue in removed:
                self.dirty_queues.pop(queue, None)
        return removed

    def set_deleted(self, str topic not None, int64_t below):
        """Records of the topic below this physical offset belong to a deleted namesake: dispatch() passes them over."""
        self.topic_state(topic).deleted_below = below

    def take_dirty_queues(self):
        """Queues written to since the last call."""
        taken = self.dirty_queues
        self.dirty_queues = {}
        for queue in taken:
            (<Queue> queue).state.dirty = False
        return list(taken)

    # --- topic table ----------------------------------------------------------------------------------------------

    cdef TopicState *topic_state(self, str topic) except NULL:
        """Find or create the state of a topic."""
        cdef Py_ssize_t n
        cdef const char *name = PyUnicode_AsUTF8AndSize(topic, &n)
        cdef uint32_t h = java_hash(0, <const uint8_t *> name, n)
        cdef TopicState *state = self.find_topic(<const uint8_t *> name, <int32_t> n, h)
        if state != NULL:
            return state
        if 2 * (self.table_used + 1) > self.table_size:
            self.grow_table()
        state = <TopicState *> calloc(1, sizeof(TopicState))
        if state == NULL:
            raise MemoryError
        state.name = <uint8_t *> malloc(n + 1)
        if state.name == NULL:
            free(state)
            raise MemoryError
        memcpy(state.name, name, n)
        state.name_len = <int32_t> n
        state.hash = h
        state.key_prefix = java_hash(h, <const uint8_t *> b"#", 1)
        state.scheduled = topic == "SCHEDULE_TOPIC_XXXX"
        self.enter_topic(state)
        return state

    cdef void enter_topic(self, TopicState *state) noexcept:
        cdef int64_t at = (state.hash * 0x9E3779B1U) & (self.table_size - 1)
        while self.table[at] != NULL:
            at = (at + 1) & (self.table_size - 1)
        self.table[at] = state
        self.table_used += 1

    cdef int grow_table(self) except -1:
        cdef TopicState **old = self.table
        cdef int64_t old_size = self.table_size
        cdef int64_t i
        cdef TopicState **grown = <TopicState **> calloc(2 * old_size, sizeof(TopicState *))
        if grown == NULL:
            raise MemoryError
        self.table = grown
        self.table_size = 2 * old_size
        self.table_used = 0
        for i in range(old_size):
            if old[i] != NULL:
                self.enter_topic(old[i])
        free(old)
        return 0

    cdef TopicState *find_topic(self, const uint8_t *name, int32_t n, uint32_t h) noexcept nogil:
        cdef int64_t at = (h * 0x9E3779B1U) & (self.table_size - 1)
        cdef TopicState *state = self.table[at]
        while state != NULL:
            if state.hash == h and state.name_len == n and memcmp(state.name, name, n) == 0:
                return state
            at = (at + 1) & (self.table_size - 1)
            state = self.table[at]
        return NULL

    # --- one batch ------------------------------------------------------------------------------------------------

    def append(self, batch, int64_t now_ms):
        """Append NewMessage tuples; a list of Appended, or a NEED_ code (then provide it and call run()).

        TooLarge and ValueError name the offending message; nothing was written then.
        """
        cdef Py_ssize_t n
        cdef Py_ssize_t i
        if type(batch) is not list and type(batch) is not tuple:
            batch = list(batch)
        n = len(batch)
        self.make_room(n)
        for i in range(n):
            self.load(batch[i], &self.items[i], i)
        self.batch_held = batch
        self.count = n
        self.now_ms = now_ms if now_ms > self.last_store_ms else self.last_store_ms
        return self.run()

    cdef int make_room(self, Py_ssize_t n) except -1:
        cdef Prepared *items
        cdef QueueState **touched
        if n > self.room:
            items = <Prepared *> realloc(self.items, n * sizeof(Prepared))
            if items == NULL:
                raise MemoryError
            self.items = items
            touched = <QueueState **> realloc(self.touched, n * sizeof(QueueState *))
            if touched == NULL:
                raise MemoryError
            self.touched = touched
            self.room = n
        return 0

    cdef int load(self, object message, Prepared *item, Py_ssize_t index) except -1:
        """Read one NewMessage by position; pointers stay valid while the batch is held."""
        cdef Py_ssize_t n
        cdef PyObject *field
        if not PyTuple_Check(message) or PyTuple_GET_SIZE(message) != 10:
            raise TypeError(f"message {index} of the batch is not a NewMessage")
        topic = <object> PyTuple_GET_ITEM(message, 0)
        body = <object> PyTuple_GET_ITEM(message, 2)
        properties = <object> PyTuple_GET_ITEM(message, 3)
        host = <object> PyTuple_GET_ITEM(message, 7)
        if not (PyBytes_CheckExact(body) and PyBytes_CheckExact(properties) and PyBytes_CheckExact(host)):
            raise TypeError(f"message {index} of the batch: body, properties and born_host are bytes")
        item.topic = <const uint8_t *> PyUnicode_AsUTF8AndSize(topic, &n)
        if not 0 < n <= TOPIC_BYTES:
            raise TooLarge(f"message {index} of the batch: topic has {n} bytes, allowed are 1 to {TOPIC_BYTES}")
        item.topic_len = <int32_t> n
        n = PyBytes_GET_SIZE(body)
        if n > self.body_max:
            raise TooLarge(f"message {index} of the batch: body has {n} bytes, allowed are {self.body_max}")
        item.body = <const uint8_t *> PyBytes_AS_STRING(body)
        item.body_len = <int32_t> n
        n = PyBytes_GET_SIZE(properties)
        if n > self.properties_max:
            raise TooLarge(f"message {index} of the batch: properties have {n} bytes, allowed are {self.properties_max}")
        item.properties = <const uint8_t *> PyBytes_AS_STRING(properties)
        item.properties_len = <int32_t> n
        n = PyBytes_GET_SIZE(host)
        if n != 0 and n != HOST_V4 and n != HOST_V6:
            raise ValueError(f"message {index} of the batch: a packed host has 0, 8 or 20 bytes, not {n}")
        item.born_host = <const uint8_t *> PyBytes_AS_STRING(host)
        item.born_host_len = <int32_t> n
        item.queue_id = <object> PyTuple_GET_ITEM(message, 1)
        if not 0 <= item.queue_id <= QUEUE_ID_MAX:
            raise ValueError(f"message {index} of the batch: queue id {item.queue_id} is not between 0 and {QUEUE_ID_MAX}")
        item.sys_flag = <object> PyTuple_GET_ITEM(message, 4)
        item.flag = <object> PyTuple_GET_ITEM(message, 5)
        item.born_ms = <object> PyTuple_GET_ITEM(message, 6)
        item.reconsume_times = <object> PyTuple_GET_ITEM(message, 8)
        item.prepared_offset = <object> PyTuple_GET_ITEM(message, 9)
        return self.prepare(item, index)

    cdef int prepare(self, Prepared *item, Py_ssize_t index) except -1:
        """Everything about a message that does not depend on where it lands. Producers other than load() call it too."""
        cdef int64_t size
        if item.sys_flag & FLAG_INNER_BATCH:
            raise ValueError(f"message {index} of the batch: inner batches (sysFlag 0x80) are not written by this store")
        item.stored_properties_len = item.properties_len
        if self.crc_property:
            item.stored_properties_len += CRC_PROPERTY_BYTES
            if item.properties_len and item.properties[item.properties_len - 1] != 2:
                item.stored_properties_len += 1
            if item.stored_properties_len > 32767:
                raise TooLarge(f"message {index} of the batch: properties leave no room for the CRC property")
        if item.properties_len and item.properties[item.properties_len - 1] == 0:
            raise ValueError(f"message {index} of the batch: properties end in a zero byte, which recovery takes for a torn "
                             "record")
        if not names_folder(item.topic, item.topic_len):
            raise ValueError(f"message {index} of the batch: the topic cannot be a folder name, so it cannot be a topic")
        size = (FIXED_BYTES + (HOST_V6 if item.born_host_len == HOST_V6 else HOST_V4) + self.store_host_len
                + item.body_len + item.topic_len + item.stored_properties_len)
        if item.topic_len > TOPIC_V1_BYTES:
            size += 1
        if size + BLANK_BYTES > self.file_bytes:
            raise TooLarge(f"message {index} of the batch: record of {size} bytes does not fit a commit-log file "
                           f"of {self.file_bytes}")
        item.size = <int32_t> size
        item.has_unit = (item.sys_flag & FLAG_TRANSACTION) in (0, 0x8)
        find_marks(item.properties, item.properties_len, &item.marks)
        return 0

    def run(self):
        """Plan and write the batch at hand: a list of Appended, or the next NEED_ code."""
        cdef int code = self.run_quietly()
        return code if code != DONE_ else self.finish()

    cdef int run_quietly(self) except -1:
        """Plan and write the batch at hand: DONE, then settle() has to follow; or the next NEED_ code, explained."""
        cdef int code
        cdef Py_ssize_t i
        cdef int64_t total = 0
        for i in range(self.count):
            total += self.items[i].size
        if total >= RELEASE_GIL_BYTES:
            with nogil:
                code = self.plan()
                if code == DONE_:
                    self.write()
        else:
            code = self.plan()
            if code == DONE_:
                self.write()
        if code != DONE_:
            self.explain(code)
        return code

    def forget(self):
        """Drop a batch that could not be provided for."""
        self.count = 0
        self.batch_held = None
        self.needed = None

    cdef int plan(self) noexcept nogil:
        """Assign every offset; touch nothing but planned fields."""
        cdef Py_ssize_t i
        cdef int64_t at = self.end
        cdef int32_t segment = 0
        cdef int64_t segment_end
        cdef int64_t entries = 0
        cdef Prepared *item
        cdef QueueState *queue
        cdef TopicState *topic = self.last_topic
        self.batch += 1
        self.touched_count = 0
        self.need_at = 0
        if self.segment_count == 0:
            return NEED_SEGMENT_
        while segment + 1 < self.segment_count and self.segments[segment].start + self.file_bytes <= at:
            segment += 1
        segment_end = self.segments[segment].start + self.file_bytes
        if at >= segment_end:
            return NEED_SEGMENT_
        for i in range(self.count):
            item = &self.items[i]
            if (topic == NULL or topic.name_len != item.topic_len
                    or memcmp(topic.name, item.topic, item.topic_len) != 0):
                topic = self.find_topic(item.topic, item.topic_len, java_hash(0, item.topic, item.topic_len))
            self.need_at = i
            if topic == NULL or item.queue_id >= topic.queue_room or topic.queues[item.queue_id] == NULL:
                return NEED_QUEUE_
            queue = topic.queues[item.queue_id]
            item.topic_state = topic
            item.queue = queue
            if at + item.size + BLANK_BYTES > segment_end:
                if segment + 1 == self.segment_count:
                    return NEED_SEGMENT_
                segment += 1
                at = segment_end
                segment_end += self.file_bytes
            item.physical_offset = at
            at += item.size
            # The end-of-file marker after the last record is written into populated bytes too.
            if at + BLANK_BYTES > self.segments[segment].populated_end:
                self.need_end = at + BLANK_BYTES
                return NEED_PAGES_
            if queue.batch != self.batch:
                queue.batch = self.batch
                queue.planned = queue.next
                self.touched[self.touched_count] = queue
                self.touched_count += 1
            if item.has_unit:
                item.queue_offset = queue.planned
                queue.planned += 1
                if queue.file_count == 0 or queue.planned > queue.files[queue.file_count - 1].reserved_end:
                    return NEED_UNITS_
            else:
                item.queue_offset = 0
            if self.index_enabled and (item.sys_flag & FLAG_TRANSACTION) != FLAG_ROLLBACK:
                entries += count_keys(&item.marks)
        self.last_topic = topic
        if entries:
            self.need_end = entries
            if entries > self.index_free():
                return NEED_INDEX_
        return DONE_

    cdef int64_t index_free(self) noexcept nogil:
        cdef int64_t room = 0
        cdef int32_t i
        for i in range(self.index_count):
            room += self.indexes[i].reserved_count - self.indexes[i].count
        return room

    cdef int explain(self, int code) except -1:
        """Fill `needed` for Python."""
        cdef Prepared *item
        if code == NEED_QUEUE_:
            item = &self.items[self.need_at]
            self.needed = ((<const char *> item.topic)[:item.topic_len].decode("utf-8"), item.queue_id)
        elif code == NEED_UNITS_:
            self.needed = <Queue> self.items[self.need_at].queue.owner
        elif code == NEED_PAGES_ or code == NEED_INDEX_:
            self.needed = self.need_end
        else:
            self.needed = None
        return 0

    cdef void write(self) noexcept nogil:
        """Put a planned batch in place; cannot fail."""
        cdef Py_ssize_t i
        cdef int64_t at = self.end
        cdef Prepared *item
        cdef QueueState *queue
        cdef int64_t segment_end
        cdef int32_t segment = 0
        cdef int32_t first_index = 0
        cdef int32_t k
        while segment + 1 < self.segment_count and self.segments[segment].start + self.file_bytes <= at:
            segment += 1
        segment_end = self.segments[segment].start + self.file_bytes
        for i in range(self.count):
            item = &self.items[i]
            if item.physical_offset >= segment_end:
                put_blank(self.segments[segment].base + (at - self.segments[segment].start), <int32_t> (segment_end - at))
                segment += 1
                segment_end += self.file_bytes
            encode_record(self.segments[segment].base + (item.physical_offset - self.segments[segment].start), item,
                          self.now_ms, self.host, self.store_host_len, self.crc_property)
            at = item.physical_offset + item.size
            if item.has_unit:
                queue = item.queue
                put_unit(unit_at(queue, item.queue_offset), item.physical_offset, item.size,
                         self.tag_code(item.topic_state, &item.marks, self.now_ms))
                queue.end_physical = at
            if self.index_enabled and (item.sys_flag & FLAG_TRANSACTION) != FLAG_ROLLBACK:
                self.index_keys(item.topic_state, &item.marks, item.physical_offset, self.now_ms)
        for i in range(self.touched_count):
            self.touched[i].next = self.touched[i].planned
        for k in range(self.index_count):
            put_index_header(&self.indexes[k])
        self.bytes_total += at - self.end
        self.records_total += self.count
        self.end = at
        if self.count:
            self.last_store_ms = self.now_ms

    cdef int64_t tag_code(self, TopicState *topic, const Marks *marks, int64_t store_ms) noexcept nogil:
        """Java hash of TAGS sign-extended; the due time for a delayed record under SCHEDULE_TOPIC_XXXX (3.1)."""
        if topic.scheduled and marks.delay > 0:
            if self.delay_count == 0:
                return store_ms + 1000
            return store_ms + self.delays[min(marks.delay, self.delay_count) - 1]
        if marks.tags_len:
            return <int32_t> java_hash(0, marks.tags, marks.tags_len)
        return 0

    cdef void index_keys(self, TopicState *topic, const Marks *marks, int64_t physical_offset, int64_t store_ms) noexcept nogil:
        """UNIQ_KEY first, then the tokens of KEYS (4.2)."""
        cdef int32_t i = 0
        cdef int32_t start
        if marks.uniq_len:
            self.index_one(key_hash(java_hash(topic.key_prefix, marks.uniq, marks.uniq_len)), physical_offset, store_ms)
        while i < marks.keys_len:
            if marks.keys[i] == 32:
                i += 1
                continue
            start = i
            while i < marks.keys_len and marks.keys[i] != 32:
                i += 1
            self.index_one(key_hash(java_hash(topic.key_prefix, marks.keys + start, i - start)), physical_offset, store_ms)

    cdef inline void index_one(self, int32_t hash_value, int64_t physical_offset, int64_t store_ms) noexcept nogil:
        cdef int32_t i = 0
        while i + 1 < self.index_count and self.indexes[i].count >= self.indexes[i].reserved_count:
            i += 1
        put_key(&self.indexes[i], hash_value, physical_offset, store_ms)

    cdef int settle(self) except -1:
        """Mark the queues of a written batch dirty."""
        cdef Py_ssize_t i
        for i in range(self.touched_count):
            if not self.touched[i].dirty:
                self.touched[i].dirty = True
                self.dirty_queues[<Queue> self.touched[i].owner] = None
        return 0

    cdef object finish(self):
        """Results of a written batch."""
        cdef Py_ssize_t i
        cdef list result = [None] * self.count
        cdef Prepared *item
        stamp = self.now_ms
        self.settle()
        for i in range(self.count):
            item = &self.items[i]
            result[i] = rz_tuple4(<PyObject *> self.appended, item.queue_offset, item.physical_offset, item.size, stamp)
        self.forget()
        return result

    # --- recovery -------------------------------------------------------------------------------------------------

    def dispatch(self, MappedFile mapped not None, int64_t file_start, int64_t position, int64_t end, int64_t index_from):
        """Enter the verified records of [position, end) into queues and, from index_from on, into the index.

        Returns (code, position reached): DONE_ at `end` or at the end-of-file marker; a NEED_ code when something has to be
        provided before the record at that position (NEED_START: `needed` = (Queue, queue offset) a queue must begin at or
        skip to). Records a queue already holds are skipped, so the same span may be dispatched again.
        """
        cdef int code
        cdef int64_t at = position
        with nogil:
            code = self.dispatch_span(mapped.base, file_start, &at, end, index_from)
        if code == NEED_QUEUE_:
            shape = record_topic(mapped, at - file_start)
            self.needed = shape
        elif code == NEED_UNITS_:
            self.needed = <Queue> self.needed_queue.owner
        elif code == NEED_START_:
            self.needed = (<Queue> self.needed_queue.owner, self.need_end)
        elif code == NEED_INDEX_:
            self.needed = self.need_end
        return code, at

    cdef int dispatch_span(self, char *base, int64_t file_start, int64_t *position, int64_t end,
                           int64_t index_from) noexcept nogil:
        cdef Shape shape
        cdef Marks marks
        cdef TopicState *topic = NULL
        cdef QueueState *queue
        cdef const char *p
        cdef int64_t at = position[0]
        cdef int64_t queue_offset
        cdef int64_t store_ms
        cdef int32_t queue_id
        cdef int32_t kind
        cdef int code = DONE_
        cdef int32_t k
        while at < end:
            p = base + (at - file_start)
            if shape_of(p, end - at, &shape) != RECORD_OK:
                break
            if (topic == NULL or topic.name_len != shape.topic_len
                    or memcmp(topic.name, p + shape.topic, shape.topic_len) != 0):
                topic = self.find_topic(<const uint8_t *> p + shape.topic, shape.topic_len,
                                        java_hash(0, <const uint8_t *> p + shape.topic, shape.topic_len))
            queue_id = <int32_t> rz_get32(p + 12)
            kind = rz_get32(p + 36) & (FLAG_TRANSACTION | FLAG_INNER_BATCH)
            store_ms = <int64_t> rz_get64(p + shape.store_time)
            find_marks(<const uint8_t *> p + shape.properties, shape.properties_len, &marks)
            # A file name cannot hold an impossible topic or queue id; such a record stays readable by its offset only.
            if (0 <= queue_id <= QUEUE_ID_MAX and 0 < shape.topic_len <= TOPIC_BYTES
                    and (topic == NULL or at >= topic.deleted_below)):
                if topic == NULL or queue_id >= topic.queue_room or topic.queues[queue_id] == NULL:
                    code = NEED_QUEUE_
                    break
                queue = topic.queues[queue_id]
                if (kind == 0 or kind == 0x8) and at + shape.size > queue.end_physical:
                    queue_offset = <int64_t> rz_get64(p + 20)
                    if queue_offset > queue.next:
                        self.needed_queue = queue
                        self.need_end = queue_offset
                        code = NEED_START_
                        break
                    if queue_offset == queue.next:
                        if queue.file_count == 0 or queue_offset >= queue.files[queue.file_count - 1].reserved_end:
                            queue.planned = queue_offset + 1
                            self.needed_queue = queue
                            code = NEED_UNITS_
                            break
                        put_unit(unit_at(queue, queue_offset), at, shape.size, self.tag_code(topic, &marks, store_ms))
                        queue.next = queue_offset + 1
                        queue.end_physical = at + shape.size
                        self.dispatched_units += 1
                if self.index_enabled and at >= index_from and (kind & FLAG_TRANSACTION) != FLAG_ROLLBACK:
                    self.need_end = count_keys(&marks)
                    if self.need_end:
                        if self.index_count == 0 or self.need_end > self.index_free():
                            code = NEED_INDEX_
                            break
                        if at >= self.indexes[self.index_count - 1].end_physical:
                            self.index_keys(topic, &marks, at, store_ms)
                            self.dispatched_keys += 1
            at += shape.size
        for k in range(self.index_count):
            put_index_header(&self.indexes[k])
        position[0] = at
        return code

    def mark_dirty(self, Queue queue not None):
        """The queue was changed outside append (recovery, a cut)."""
        queue.state.dirty = True
        self.dirty_queues[queue] = None
