# One HTTP/2 stream, which is one call. For `unary_batch` methods this object itself is the `BatchCall` that handlers see.
#
# Life: made when its HEADERS frame begins, then held by its connection's list until nghttp2 closes the stream or the
# connection is lost, and by whoever was handed it (a batch handler may keep it past both). A stream that is CLOSED takes
# answers and drops them.

cdef enum:
    REQUEST_DONE = 1  # the client half-closed
    HEADERS_SENT = 2  # response headers were submitted
    ENDED = 4  # the call has its status; nothing more is taken from a handler
    CLOSED = 8  # nghttp2 has closed the stream, or the connection is gone
    DEFERRED = 16  # nghttp2 waits for `resume`
    DISCARDING = 32  # what still comes of the request is thrown away
    GZIP = 64  # grpc-encoding: gzip
    COUNTED = 128  # in its route's counters
    HEADERS_TOO_LARGE = 256
    NOT_POST = 512
    IS_GRPC = 1024  # content type seen and right
    BAD_TIMEOUT = 2048
    BAD_ENCODING = 4096
    DISPATCHED = 8192  # handed to a handler

cdef enum:
    META_BYTES = 1024  # first size of the header buffer of a stream

cdef enum:
    META_SPARE_MAX = 4096  # buffers of that size kept for the next streams

cdef struct MetaEntry:
    uint32_t name_len
    uint32_t value_len

cdef Py_ssize_t STREAMS_ALIVE = 0


def streams_alive():
    """Streams that exist in this process, of all doors: for tests that look for leaks."""
    return STREAMS_ALIVE


cdef uint8_t *META_SPARE[META_SPARE_MAX]
cdef int META_SPARE_COUNT = 0


cdef inline uint8_t *take_meta() noexcept:
    global META_SPARE_COUNT
    if META_SPARE_COUNT:
        META_SPARE_COUNT -= 1
        return META_SPARE[META_SPARE_COUNT]
    return <uint8_t *>malloc(META_BYTES)


cdef inline void give_meta(uint8_t *meta, size_t cap) noexcept:
    global META_SPARE_COUNT
    if cap == META_BYTES and META_SPARE_COUNT < META_SPARE_MAX:
        META_SPARE[META_SPARE_COUNT] = meta
        META_SPARE_COUNT += 1
    else:
        free(meta)


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Stream:
    cdef Connection conn
    cdef Route route  # None: no such method
    cdef PyObject *newer  # neighbours in the connection's list, newest first; borrowed
    cdef PyObject *older
    cdef PyObject *wheel_next  # neighbours in a slot of the deadline wheel; borrowed
    cdef PyObject *wheel_previous
    cdef int wheel_slot  # -1: not on the wheel
    cdef int32_t id
    cdef uint32_t flags
    cdef int status
    cdef int64_t begun_ns
    cdef int64_t deadline_ns  # 0: none
    # request headers: MetaEntry, name, value, repeated
    cdef uint8_t *meta
    cdef size_t meta_len
    cdef size_t meta_cap
    cdef size_t header_bytes
    # request messages
    cdef uint8_t prefix[5]
    cdef int prefix_len
    cdef int messages
    cdef PyObject *assembling  # bytes object being filled, owned
    cdef Py_ssize_t assembling_cap
    cdef Py_ssize_t message_len
    cdef Py_ssize_t filled
    cdef Py_ssize_t charged  # bytes of it counted in the connection's `incomplete`
    cdef object body  # the request of a unary or server_stream call
    cdef object inbox  # deque of a bidi call's messages not yet taken
    cdef Py_ssize_t inbox_bytes
    cdef Py_ssize_t withheld  # bytes of window not yet given back to the peer
    cdef int64_t bytes_in
    # response
    cdef bytes head  # what is being sent
    cdef uint8_t head_prefix[5]
    cdef int head_prefix_left
    cdef Py_ssize_t head_sent
    cdef object queue  # deque of framed bytes behind `head`
    cdef Py_ssize_t unsent
    cdef int64_t bytes_out
    cdef bytes text  # grpc-message, encoded
    cdef list trailing
    cdef Call call

    def __cinit__(self):
        global STREAMS_ALIVE
        STREAMS_ALIVE += 1
        self.wheel_slot = -1
        self.newer = NULL
        self.older = NULL
        self.wheel_next = NULL
        self.wheel_previous = NULL
        self.meta = NULL
        self.assembling = NULL

    def __dealloc__(self):
        global STREAMS_ALIVE
        STREAMS_ALIVE -= 1
        if self.meta != NULL:
            give_meta(self.meta, self.meta_cap)
        Py_XDECREF(self.assembling)

    # --- CallInfo

    @property
    def path(self):
        return self.route.path

    @property
    def peer(self):
        return self.conn.peer

    @property
    def secure(self):
        return self.conn.secure

    def metadata(self):
        """The request's metadata, decoded at each call."""
        cdef list pairs = []
        cdef size_t at = 0
        cdef MetaEntry entry
        while at < self.meta_len:
            memcpy(&entry, self.meta + at, sizeof(entry))
            at += sizeof(entry)
            key = self.meta[at : at + entry.name_len].decode("latin-1")
            at += entry.name_len
            value = <bytes>self.meta[at : at + entry.value_len]
            at += entry.value_len
            if key.endswith("-bin"):
                pairs.extend([(key, decoded) for decoded in decoded_binary(value)])
            else:
                pairs.append((key, value.decode("utf-8", "replace")))
        return tuple(pairs)

    def header(self, str key):
        """The first value of a text header, or None."""
        cdef Py_ssize_t size
        cdef const char *name = PyUnicode_AsUTF8AndSize(key, &size)
        cdef size_t at = 0
        cdef MetaEntry entry
        while at < self.meta_len:
            memcpy(&entry, self.meta + at, sizeof(entry))
            at += sizeof(entry)
            if entry.name_len == <size_t>size and memcmp(self.meta + at, name, <size_t>size) == 0:
                if key.endswith("-bin"):
                    return None
                at += entry.name_len
                return self.meta[at : at + entry.value_len].decode("utf-8", "replace")
            at += entry.name_len + entry.value_len
        return None

    def time_remaining(self):
        """Seconds until the deadline, never below 0, or None."""
        if self.deadline_ns == 0:
            return None
        return max(0.0, (self.deadline_ns - monotonic_ns()) / 1e9)

    # --- BatchCall

    @property
    def request(self):
        """The request message; empty once the handler has answered, so that a slow reader's requests are not kept."""
        return b"" if self.body is None else self.body

    def answer(self, bytes response not None):
        """Sends the answer of a unary call; it leaves with all others of this loop iteration."""
        answer_unary(self, response)

    def fail(self, status, str message not None):
        """Ends the call with a gRPC status other than OK."""
        if status is _STATUS[OK]:
            raise ValueError("a call cannot fail with OK")
        end_call(self, status.value, percent_encoded(message))
        self.body = None

    @staticmethod
    def answer_many(list calls not None, list responses not None):
        """Answers several calls at once: `responses[i]` belongs to `calls[i]`; each is what `answer` takes."""
        cdef Py_ssize_t i
        if len(calls) != len(responses):
            raise ValueError(f"{len(calls)} calls and {len(responses)} responses")
        for i in range(len(calls)):
            answer_unary(<Stream?>calls[i], <bytes?>responses[i])

    # --- bookkeeping

    cdef int keep_header(self, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len) noexcept:
        """Appends one header to the buffer; -1 when memory is short."""
        cdef MetaEntry entry
        cdef size_t need = self.meta_len + sizeof(entry) + name_len + value_len
        cdef size_t size
        cdef void *grown
        if self.meta == NULL:
            self.meta = take_meta()
            if self.meta == NULL:
                return -1
            self.meta_cap = META_BYTES
        if need > self.meta_cap:
            size = self.meta_cap * 2
            while size < need:
                size *= 2
            grown = realloc(self.meta, size)
            if grown == NULL:
                return -1
            self.meta = <uint8_t *>grown
            self.meta_cap = size
        entry.name_len = <uint32_t>name_len
        entry.value_len = <uint32_t>value_len
        memcpy(self.meta + self.meta_len, &entry, sizeof(entry))
        memcpy(self.meta + self.meta_len + sizeof(entry), name, name_len)
        memcpy(self.meta + self.meta_len + sizeof(entry) + name_len, value, value_len)
        self.meta_len = need
        return 0

    cdef inline void uncharge(self) noexcept:
        self.conn.incomplete -= self.charged
        self.conn.door.incomplete -= self.charged
        self.charged = 0

    cdef inline void drop_request(self) noexcept:
        """Forgets a half received message."""
        self.uncharge()
        Py_XDECREF(self.assembling)
        self.assembling = NULL
        self.prefix_len = 0
        self.flags |= DISCARDING

    cdef void settle(self, int status):
        """The call has ended, once: counters, access log, deadline."""
        cdef int64_t duration_ns = 0
        self.flags |= ENDED
        self.status = status
        if self.wheel_slot >= 0:
            self.conn.door.wheel.remove(self)
        if self.flags & COUNTED or self.conn.door.access_log is not None:
            duration_ns = monotonic_ns() - self.begun_ns
        if self.flags & COUNTED:
            self.route.end(status, duration_ns)
        if self.conn.door.access_log is not None and self.route is not None:
            self.conn.door.report(self, status, duration_ns)
