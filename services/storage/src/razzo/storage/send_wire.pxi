# What a SendMessage request becomes: its properties as a record keeps them, its answer, and a whole batch of them in the
# log. `send_walk.pxi` reads the requests.

# ---- properties and answer -------------------------------------------------------------------------------------------

cdef enum:
    # Names and separators of the properties that are no user's: UNIQ_KEY, TAGS, KEYS, TRACE_CONTEXT, __BORNHOST.
    OWN_PROPERTIES_BYTES = 64
    # Both statuses, the offset and the keys of an answer; the message id comes on top.
    ANSWER_FIXED_BYTES = 48

cdef const char* STATUS_OK = b"\x08\xa0\x9c\x01\x12\x02OK"     # Status {code: 20000, message: "OK"}
cdef enum:
    STATUS_OK_BYTES = 8


cdef inline uint8_t* put_property(uint8_t* out, const char* name, Py_ssize_t name_size, Span value) noexcept nogil:
    memcpy(out, name, name_size)
    out += name_size
    out[0] = 1
    memcpy(out + 1, value.at, value.size)
    out += 1 + value.size
    out[0] = 2
    return out + 1


cdef uint8_t* put_properties(uint8_t* out, const SendView* view) noexcept nogil:
    """The record's properties: the message's own first, then the user's in the order of the request. Needs the bytes of
    the message without its body, plus OWN_PROPERTIES_BYTES."""
    cdef WireReader reader
    cdef WireField field
    cdef Span key, value
    out = put_property(out, b"UNIQ_KEY", 8, view.message_id)
    if view.tag.size:
        out = put_property(out, b"TAGS", 4, view.tag)
    if view.key_count:
        memcpy(out, b"KEYS\x01", 5)
        out += 5
        reader = wire_reader(view.system)
        while wire_next(&reader, &field):
            if field.number == SYSTEM_KEYS and field.kind == WIRE_BYTES:
                memcpy(out, field.span.at, field.span.size)
                out += field.span.size
                out[0] = 32
                out += 1
        (out - 1)[0] = 2
    if view.trace_context.size:
        out = put_property(out, b"TRACE_CONTEXT", 13, view.trace_context)
    if view.born_host.size:
        out = put_property(out, b"__BORNHOST", 10, view.born_host)
    reader = wire_reader(view.message)
    while wire_next(&reader, &field):
        if field.number == MESSAGE_USER_PROPERTIES and field.kind == WIRE_BYTES:
            walk_property(field.span, &key, &value)
            out = put_property(out, <const char*>key.at, key.size, value)
    return out


cdef bytes send_answer(const SendView* view, int64_t queue_offset):
    """SendMessageResponse: OK, one entry with the message's id and its offset in the queue."""
    cdef uint8_t fixed[ANSWER_FIXED_BYTES]
    cdef uint8_t* out = fixed
    cdef Py_ssize_t id_bytes = 1 + varint_size(view.message_id.size) + view.message_id.size
    cdef Py_ssize_t entry = 2 + STATUS_OK_BYTES + id_bytes
    cdef Py_ssize_t head
    if queue_offset:
        entry += 1 + varint_size(queue_offset)
    out = put_text(out, 0x0A, STATUS_OK, STATUS_OK_BYTES)
    out = put_number(out, 0x12, entry)
    out = put_text(out, 0x0A, STATUS_OK, STATUS_OK_BYTES)
    out[0] = 0x12
    out = put_varint(out + 1, view.message_id.size)
    head = out - fixed
    cdef bytes answer = PyBytes_FromStringAndSize(NULL, 2 + STATUS_OK_BYTES + 1 + varint_size(entry) + entry)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(answer)
    memcpy(at, fixed, head)
    memcpy(at + head, view.message_id.at, view.message_id.size)
    if queue_offset:
        put_number(at + head + view.message_id.size, 0x20, queue_offset)
    return answer


cdef class SendWire:
    """SendMessage requests straight into the log, for the messages that are plainly valid.

    `load` takes the requests of a batch and prepares those it can; `run` writes them (and asks for what it needs as
    `LogWriter.run` does); `answers` gives the finished SendMessageResponse of each. A topic takes part once `offer`
    named it.
    """

    cdef LogWriter writer
    cdef SendLimits limits
    cdef SendView* views
    cdef Py_ssize_t* places         # of the hot ones, in the list of requests
    cdef Py_ssize_t room
    cdef uint8_t* arena             # properties of the batch, encoded
    cdef Py_ssize_t arena_room
    cdef Py_ssize_t taken
    cdef list requests              # held: the views point into them
    cdef list hosts

    def __cinit__(self, LogWriter writer not None, *, Py_ssize_t body_bytes_max, Py_ssize_t text_bytes_max,
                  Py_ssize_t id_bytes_max, Py_ssize_t trace_bytes_max, reserved_names, reserved_prefixes):
        self.writer = writer
        self.limits.body_bytes_max = min(body_bytes_max, writer.rules.body_max)
        self.limits.text_bytes_max = text_bytes_max
        self.limits.id_bytes_max = id_bytes_max
        self.limits.trace_bytes_max = trace_bytes_max
        fill_name_filter(&self.limits.reserved, reserved_names, reserved_prefixes)

    def __dealloc__(self):
        free(self.views)
        free(self.places)
        free(self.arena)

    def offer(self, str topic not None, int queues):
        """Messages of this topic may be taken, spread over queues 0 to `queues` - 1; 0 queues: no longer."""
        self.writer.topics.state(topic).hot_queues = queues

    def load(self, list requests not None, list hosts not None, int64_t now_ms):
        """Prepares a batch of SendMessageRequest bytes; `hosts` are the senders' packed addresses (0, 8 or 20 bytes).
        Returns how many were taken. A batch that `run` was not done with is forgotten."""
        cdef Py_ssize_t n = len(requests)
        cdef Py_ssize_t i
        cdef Py_ssize_t arena_bytes = 0
        cdef uint8_t* arena
        cdef uint8_t* end
        cdef SendView* view
        cdef TopicState* topic
        cdef bytes request
        cdef bytes host
        if len(hosts) != n:
            raise ValueError(f"{n} requests, {len(hosts)} hosts")
        self.forget()
        self.make_room(n)
        for i in range(n):
            request = requests[i]
            view = &self.views[self.taken]
            if walk_send(<const uint8_t*>PyBytes_AS_STRING(request), PyBytes_GET_SIZE(request), &self.limits, view) != HOT:
                continue
            if view.topic.size > TOPIC_V1_BYTES:
                continue
            topic = self.writer.topics.find(view.topic.at, <int32_t>view.topic.size,
                                           java_hash(0, view.topic.at, view.topic.size))
            if topic == NULL or topic.hot_queues <= 0 or topic.batched:
                continue
            view.target = topic
            self.places[self.taken] = i
            self.taken += 1
            arena_bytes += view.message.size - view.body.size + OWN_PROPERTIES_BYTES
        if not self.taken:
            return 0
        if arena_bytes > self.arena_room:
            arena = <uint8_t*>realloc(self.arena, 2 * arena_bytes)
            if arena == NULL:
                raise MemoryError
            self.arena = arena
            self.arena_room = 2 * arena_bytes
        self.writer.make_room(self.taken)
        self.writer.now_ms = now_ms if now_ms > self.writer.last_store_ms else self.writer.last_store_ms
        arena = self.arena
        n = 0
        for i in range(self.taken):
            view = &self.views[i]
            end = put_properties(arena, view)
            host = hosts[self.places[i]]
            if self.fill(&self.writer.items[n], view, arena, end - arena, host, now_ms):
                if n < i:
                    self.views[n] = view[0]
                    self.places[n] = self.places[i]
                n += 1
            arena = end
        self.taken = n
        self.requests = requests
        self.hosts = hosts
        self.writer.count = n
        return n

    cdef bint fill(self, Prepared* item, const SendView* view, const uint8_t* properties, Py_ssize_t properties_len,
                   bytes host, int64_t now_ms) except -1:
        """False when the record would not fit; the slow path says why."""
        cdef TopicState* topic = view.target
        if properties_len > self.writer.rules.properties_max:
            return False
        item.topic = topic.name
        item.topic_len = topic.name_len
        item.body = view.body.at
        item.body_len = <int32_t>view.body.size
        item.properties = properties
        item.properties_len = <int32_t>properties_len
        item.born_host = <const uint8_t*>PyBytes_AS_STRING(host)
        item.born_host_len = <int32_t>PyBytes_GET_SIZE(host)
        item.queue_id = <int32_t>(topic.hot_turn % <uint32_t>topic.hot_queues)
        item.sys_flag = 0
        item.flag = 0
        item.reconsume_times = 0
        item.born_ms = view.born_ms if view.born_ms >= 0 else now_ms
        item.prepared_offset = 0
        try:
            self.writer.rules.prepare(item, 0)
        except TooLarge:
            return False
        topic.hot_turn += 1
        return True

    def run(self):
        """DONE (0), or the next NEED_ code: provide it and call again."""
        return self.writer.run_quietly()

    def answers(self):
        """(answers, end, topics) after `run` was done: for each request its SendMessageResponse or None, the log offset at
        which the last record ends, and the names of the topics that got messages."""
        cdef Py_ssize_t i
        cdef list answers = [None] * len(self.requests)
        cdef Prepared* item
        cdef TopicState* last = NULL
        cdef int64_t end = 0
        topics = set()
        for i in range(self.taken):
            item = &self.writer.items[i]
            answers[self.places[i]] = send_answer(&self.views[i], item.queue_offset)
            end = item.physical_offset + item.size
            if item.topic_state != last:
                last = item.topic_state
                topics.add((<const char*>last.name)[:last.name_len].decode())
        self.writer.settle()
        self.forget()
        return answers, end, topics

    def forget(self):
        """Drops a batch that was not written."""
        self.taken = 0
        self.requests = None
        self.hosts = None
        self.writer.forget()

    cdef int make_room(self, Py_ssize_t n) except -1:
        cdef SendView* views
        cdef Py_ssize_t* places
        if n <= self.room:
            return 0
        views = <SendView*>realloc(self.views, n * sizeof(SendView))
        if views == NULL:
            raise MemoryError
        self.views = views
        places = <Py_ssize_t*>realloc(self.places, n * sizeof(Py_ssize_t))
        if places == NULL:
            raise MemoryError
        self.places = places
        self.room = n
        return 0
