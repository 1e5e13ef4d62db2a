# Topics and their queues: an open-addressing table that C looks a topic up in by its bytes.

cdef class TopicTable:
    cdef TopicState **table         # open addressing, power of two
    cdef int64_t table_size
    cdef int64_t table_used
    cdef dict names                 # str -> Queue objects by id: keeps every QueueState alive

    def __cinit__(self):
        self.names = {}
        self.table_size = 1024
        self.table = <TopicState **> calloc(self.table_size, sizeof(TopicState *))
        if self.table == NULL:
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

    def add_queue(self, Queue queue not None):
        """Enter a queue into the topic table."""
        cdef TopicState *topic = self.state(queue.topic)
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
        topic.batched = topic.batched or queue.state.batched
        self.names.setdefault(queue.topic, {})[queue.queue_id] = queue

    def remove_queue(self, Queue queue not None):
        """Forget one queue."""
        self.state(queue.topic).queues[queue.queue_id] = NULL
        del self.names[queue.topic][queue.queue_id]

    def set_batched(self, str topic not None):
        """The topic is for inner batches."""
        self.state(topic).batched = True

    def remove_topic(self, str topic not None):
        """Forget all queues of a topic; returns them."""
        cdef TopicState *state
        removed = list(self.names.pop(topic, {}).values())
        if removed:
            state = self.state(topic)
            memset(state.queues, 0, state.queue_room * sizeof(QueueState *))
            state.hot_queues = 0
            state.batched = False
        return removed

    def set_deleted(self, str topic not None, int64_t below):
        """Records of the topic below this physical offset belong to a deleted namesake: dispatch() passes them over."""
        self.state(topic).deleted_below = below

    cdef TopicState *state(self, str topic) except NULL:
        """Find or create the state of a topic."""
        cdef Py_ssize_t n
        cdef const char *name = PyUnicode_AsUTF8AndSize(topic, &n)
        cdef uint32_t h = java_hash(0, <const uint8_t *> name, n)
        cdef TopicState *state = self.find(<const uint8_t *> name, <int32_t> n, h)
        if state != NULL:
            return state
        if 2 * (self.table_used + 1) > self.table_size:
            self.grow()
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
        self.enter(state)
        return state

    cdef void enter(self, TopicState *state) noexcept:
        cdef int64_t at = (state.hash * 0x9E3779B1U) & (self.table_size - 1)
        while self.table[at] != NULL:
            at = (at + 1) & (self.table_size - 1)
        self.table[at] = state
        self.table_used += 1

    cdef int grow(self) except -1:
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
                self.enter(old[i])
        free(old)
        return 0

    cdef TopicState *find(self, const uint8_t *name, int32_t n, uint32_t h) noexcept nogil:
        cdef int64_t at = (h * 0x9E3779B1U) & (self.table_size - 1)
        cdef TopicState *state = self.table[at]
        while state != NULL:
            if state.hash == h and state.name_len == n and memcmp(state.name, name, n) == 0:
                return state
            at = (at + 1) & (self.table_size - 1)
            state = self.table[at]
        return NULL
