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

cdef enum:
    DONE_ = 0
    NEED_QUEUE_ = 1
    NEED_UNITS_ = 2
    NEED_SEGMENT_ = 3
    NEED_PAGES_ = 4
    NEED_INDEX_ = 5
    NEED_START_ = 6
    REFUSED_ = 7                    # never leaves the kernel: an exception says why
    RELEASE_GIL_BYTES = 32768       # smaller batches are written faster than a lock changes hands

DONE = DONE_
NEED_QUEUE = NEED_QUEUE_            # `needed`: (topic, queue id) to create
NEED_UNITS = NEED_UNITS_            # `needed`: Queue whose reserved_end must grow above its `planned`
NEED_SEGMENT = NEED_SEGMENT_        # one more segment after the last
NEED_PAGES = NEED_PAGES_            # `needed`: end of the segment bytes that must be populated, counted in the whole log
NEED_INDEX = NEED_INDEX_            # `needed`: index entries the batch makes
NEED_START = NEED_START_            # recovery only, see dispatch()


cdef class LogWriter:
    cdef Prepared *items
    cdef Py_ssize_t count           # items in the batch under way
    cdef Py_ssize_t room
    cdef readonly TopicTable topics
    cdef readonly LogSegments segments
    cdef readonly IndexFiles indexes
    cdef int64_t file_bytes
    cdef int64_t end                # physical offset of the next record
    cdef int64_t last_store_ms
    cdef int64_t now_ms
    cdef uint64_t batch
    cdef bint index_enabled
    cdef bint crc_property
    cdef RecordRules rules
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
        self.rules = RecordRules(file_bytes, body_max, properties_max, len(store_host), crc_property)
        self.store_host = store_host
        self.host = <const uint8_t *> PyBytes_AS_STRING(store_host)
        self.store_host_len = <int32_t> len(store_host)
        self.crc_property = crc_property
        self.index_enabled = index_enabled
        self.delay_count = len(delays)
        for i, delay in enumerate(delays):
            self.delays[i] = delay
        self.appended = appended
        self.topics = TopicTable()
        self.segments = LogSegments(file_bytes)
        self.indexes = IndexFiles()
        self.dirty_queues = {}

    def __dealloc__(self):
        free(self.items)
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

    def remove_topic(self, str topic not None):
        """Forget all queues of a topic; returns them."""
        removed = self.topics.remove_topic(topic)
        for queue in removed:
            self.dirty_queues.pop(queue, None)
        return removed

    def mark_dirty(self, Queue queue not None):
        """The queue was changed outside append (recovery, a cut)."""
        queue.state.dirty = True
        self.dirty_queues[queue] = None

    def take_dirty_queues(self):
        """Queues written to since the last call."""
        taken = self.dirty_queues
        self.dirty_queues = {}
        for queue in taken:
            (<Queue> queue).state.dirty = False
        return list(taken)

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
            self.rules.load(batch[i], &self.items[i], i)
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
        cdef LogSegment *segments = self.segments.items
        self.batch += 1
        self.touched_count = 0
        self.need_at = 0
        if self.segments.count == 0:
            return NEED_SEGMENT_
        while segment + 1 < self.segments.count and segments[segment].start + self.file_bytes <= at:
            segment += 1
        segment_end = segments[segment].start + self.file_bytes
        if at >= segment_end:
            return NEED_SEGMENT_
        for i in range(self.count):
            item = &self.items[i]
            if (topic == NULL or topic.name_len != item.topic_len
                    or memcmp(topic.name, item.topic, item.topic_len) != 0):
                topic = self.topics.find(item.topic, item.topic_len, java_hash(0, item.topic, item.topic_len))
            self.need_at = i
            if topic == NULL or item.queue_id >= topic.queue_room or topic.queues[item.queue_id] == NULL:
                return NEED_QUEUE_
            queue = topic.queues[item.queue_id]
            item.topic_state = topic
            item.queue = queue
            if queue.batch != self.batch:
                queue.batch = self.batch
                queue.planned = queue.next
                queue.planned_offset = queue.next_offset
                self.touched[self.touched_count] = queue
                self.touched_count += 1
            if item.has_unit:
                if queue.batched != (item.inner_count > 0):
                    return REFUSED_
                item.unit = queue.planned
                queue.planned += 1
                item.queue_offset = queue.planned_offset
                if queue.batched:
                    queue.planned_offset += item.inner_count
                    write_out_base(item)
                else:
                    queue.planned_offset += 1
                if queue.file_count == 0 or queue.planned > queue.files[queue.file_count - 1].reserved_end:
                    return NEED_UNITS_
            else:
                item.queue_offset = 0
            if at + item.size + BLANK_BYTES > segment_end:
                if segment + 1 == self.segments.count:
                    return NEED_SEGMENT_
                segment += 1
                at = segment_end
                segment_end += self.file_bytes
            item.physical_offset = at
            at += item.size
            # The end-of-file marker after the last record is written into populated bytes too.
            if at + BLANK_BYTES > segments[segment].populated_end:
                self.need_end = at + BLANK_BYTES
                return NEED_PAGES_
            if self.index_enabled and (item.sys_flag & FLAG_TRANSACTION) != FLAG_ROLLBACK:
                entries += count_keys(&item.marks)
        self.last_topic = topic
        if entries:
            self.need_end = entries
            if entries > self.indexes.free_entries():
                return NEED_INDEX_
        return DONE_

    cdef int explain(self, int code) except -1:
        """Fill `needed` for Python."""
        cdef Prepared *item
        if code == NEED_QUEUE_:
            item = &self.items[self.need_at]
            self.needed = ((<const char *> item.topic)[:item.topic_len].decode("utf-8"), item.queue_id, item.inner_count > 0)
        elif code == NEED_UNITS_:
            self.needed = <Queue> self.items[self.need_at].queue.owner
        elif code == NEED_PAGES_ or code == NEED_INDEX_:
            self.needed = self.need_end
        elif code == REFUSED_:
            kind = "inner batches" if self.items[self.need_at].queue.batched else "ordinary messages"
            raise ValueError(f"message {self.need_at} of the batch: its queue takes only {kind}")
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
        cdef int64_t tag_code
        cdef int32_t segment = 0
        cdef LogSegment *segments = self.segments.items
        while segment + 1 < self.segments.count and segments[segment].start + self.file_bytes <= at:
            segment += 1
        segment_end = segments[segment].start + self.file_bytes
        for i in range(self.count):
            item = &self.items[i]
            if item.physical_offset >= segment_end:
                put_blank(segments[segment].base + (at - segments[segment].start), <int32_t> (segment_end - at))
                segment += 1
                segment_end += self.file_bytes
            encode_record(segments[segment].base + (item.physical_offset - segments[segment].start), item,
                          self.now_ms, self.host, self.store_host_len, self.crc_property)
            at = item.physical_offset + item.size
            if item.has_unit:
                queue = item.queue
                tag_code = self.tag_code(item.topic_state, &item.marks, self.now_ms)
                if queue.batched:
                    put_batch_unit(unit_at(queue, item.unit), item.physical_offset, item.size, tag_code, self.now_ms,
                                   item.queue_offset, item.inner_count)
                else:
                    put_unit(unit_at(queue, item.unit), item.physical_offset, item.size, tag_code)
                queue.end_physical = at
            if self.index_enabled and (item.sys_flag & FLAG_TRANSACTION) != FLAG_ROLLBACK:
                self.indexes.put_keys(item.topic_state, &item.marks, item.physical_offset, self.now_ms)
        for i in range(self.touched_count):
            self.touched[i].next_offset = self.touched[i].planned_offset
            self.touched[i].next = self.touched[i].planned
        self.indexes.put_headers()
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
