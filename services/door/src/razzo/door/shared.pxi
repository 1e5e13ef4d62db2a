# What all connections of one door share: routes, limits, buffers, the deadline wheel, the list of connections to flush.

cdef enum:
    READ_BYTES = 262144  # one read of one connection, for all of them: a read is used up before the next begins
    OUT_BYTES = 262144  # output of one connection is gathered before it is written, this much at a time
    OUT_IN_PLACE_BYTES = 16384  # so much unsent: it is gathered where it is written from, a copy less
    FRAME_BYTES_MAX = 65536 + 16384  # room for one frame of each kind: 16 KiB of DATA, a header block of 64 KiB
    FRAME_HEAD_BYTES = 9
    PLACES_MAX = 8  # buffers that transports may hold at once; what is above is copied


@cython.final
cdef class Door:
    """The native side of `native.DoorServer`. Lives on one event loop and its thread."""

    cdef object loop
    cdef dict routes
    cdef readonly set connections
    cdef readonly set running  # tasks of calls
    cdef object no_connections_waiter
    cdef object no_calls_waiter
    cdef list dirty
    cdef bint flush_soon
    cdef bint ticking
    cdef Wheel wheel
    cdef bytearray read_buffer
    cdef object read_view  # asyncio's TLS slices what it is given: a slice of a bytearray would be a copy
    cdef uint8_t *scratch
    cdef uint8_t *out  # where output is gathered: `scratch` or `place`
    cdef object place
    cdef PyObject *places[PLACES_MAX]  # owned
    cdef Py_ssize_t held  # bytes there
    cdef Py_ssize_t incomplete  # of all connections, as in Connection
    cdef Py_ssize_t inboxed
    # limits, see server.DoorLimits
    cdef Py_ssize_t request_bytes_max
    cdef Py_ssize_t response_bytes_max
    cdef uint32_t streams_max
    cdef size_t header_bytes_max
    cdef Py_ssize_t buffered_max
    cdef Py_ssize_t buffered_total_max
    cdef Py_ssize_t unsent_stream_max
    cdef Py_ssize_t unsent_connection_max
    cdef Py_ssize_t batch_max
    cdef int64_t idle_ns
    cdef int64_t handshake_ns
    cdef int64_t keepalive_ns
    cdef double pings_per_s_max
    cdef double resets_per_s_max
    # observers
    cdef object authenticate
    cdef object access_log
    cdef uint64_t access_log_every
    cdef uint64_t finished_calls
    cdef bint count_calls

    def __cinit__(self, loop, table, limits, observers):
        self.loop = loop
        self.routes = {}
        for method in table:
            self.routes[method.path.encode()] = Route(method)
        self.connections = set()
        self.running = set()
        self.dirty = []
        self.wheel = Wheel()
        self.read_buffer = bytearray(READ_BYTES)
        self.read_view = memoryview(self.read_buffer)
        self.scratch = <uint8_t *>malloc(OUT_BYTES)
        if self.scratch == NULL:
            raise MemoryError
        self.request_bytes_max = limits.request_bytes_max
        self.response_bytes_max = limits.response_bytes_max
        self.streams_max = limits.streams_per_connection_max
        self.header_bytes_max = limits.header_bytes_max
        self.buffered_max = limits.buffered_request_bytes_max
        self.buffered_total_max = limits.buffered_total_bytes_max
        self.unsent_stream_max = limits.unsent_stream_bytes_max
        self.unsent_connection_max = limits.unsent_connection_bytes_max
        self.batch_max = limits.batch_calls_max
        self.idle_ns = int(limits.idle_s * 1e9)
        self.handshake_ns = int(limits.handshake_s * 1e9)
        self.keepalive_ns = int(limits.keepalive_s * 1e9)
        self.pings_per_s_max = limits.pings_per_s_max
        self.resets_per_s_max = limits.resets_per_s_max
        self.authenticate = observers.authenticate
        self.access_log = observers.access_log
        self.access_log_every = observers.access_log_every
        self.count_calls = observers.count_calls

    def __dealloc__(self):
        cdef Py_ssize_t at
        free(self.scratch)
        for at in range(PLACES_MAX):
            Py_XDECREF(self.places[at])

    def protocol(self, bint secure):
        """A protocol for one accepted connection."""
        return DoorProtocol(self, secure)

    def counts(self):
        """`MethodCounts` by path; empty when calls are not counted."""
        if not self.count_calls:
            return {}
        return {route.path: route.counts() for route in self.routes.values()}

    # --- handlers

    cdef int run_batch(self, Route route, list batch) except -1:
        """One call of a batch handler; calls it did not take responsibility for because it failed end with its error."""
        cdef Stream s
        try:
            route.handler(batch)
        except RpcError as refusal:
            text = percent_encoded(refusal.message)
            for s in batch:
                end_call(s, refusal.status.value, text)
        except Exception:
            log.exception("handler of %s failed", route.path)
            for s in batch:
                end_call(s, INTERNAL, INTERNAL_TEXT)
        return 0

    cdef bint admits(self, Stream s) except -1:
        """Asks the authentication hook."""
        try:
            self.authenticate(s)
            return True
        except RpcError as refusal:
            refuse(s, refusal.status.value, percent_encoded(refusal.message))
        except Exception:
            log.exception("authentication of %s failed", s.route.path)
            refuse(s, INTERNAL, INTERNAL_TEXT)
        return False

    cdef int report(self, Stream s, int status, int64_t duration_ns) except -1:
        """One finished call, for the access log."""
        self.finished_calls += 1
        if self.finished_calls % self.access_log_every:
            return 0
        record = AccessRecord(
            s.route.path, s.conn.peer, s.conn.secure, _STATUS[status], duration_ns / 1e9, s.bytes_in, s.bytes_out)
        try:
            self.access_log(record)
        except Exception:
            log.exception("access log failed")
        return 0

    # --- output of the connection that is being flushed

    cdef int open_out(self, Py_ssize_t unsent) except -1:
        """A place for the next output of a connection with so many unsent bytes of answers."""
        self.held = 0
        self.place = None
        self.out = self.scratch
        if unsent > OUT_IN_PLACE_BYTES:
            self.place = self.free_place()
            if self.place is not None:
                self.out = <uint8_t *>PyByteArray_AS_STRING(self.place)
        return 0

    cdef object free_place(self):
        """A buffer that no transport holds any more, or None."""
        cdef Py_ssize_t at
        for at in range(PLACES_MAX):
            if self.places[at] == NULL:
                place = bytearray(OUT_BYTES)
                Py_INCREF(place)
                self.places[at] = <PyObject *>place
                return place
            if reference_count(self.places[at]) == 1:
                return <object>self.places[at]
        return None

    cdef object close_out(self):
        """What was gathered, to be written: a view of its place, or a copy when it is small."""
        if self.place is None:
            return PyBytes_FromStringAndSize(<char *>self.scratch, self.held)
        view = memoryview(self.place)[: self.held]
        self.place = None
        return view

    # --- answers given outside of a read

    cdef int mark_dirty(self, Connection conn) except -1:
        self.dirty.append(conn)
        if not self.flush_soon:
            self.flush_soon = True
            self.loop.call_soon(self.flush_dirty)
        return 0

    def flush_dirty(self):
        """Writes the answers of this loop iteration: one write for each connection that has some."""
        cdef Connection conn
        cdef list dirty = self.dirty
        self.dirty = []
        self.flush_soon = False
        for conn in dirty:
            conn.dirty = False
            conn.flush()

    # --- time

    cdef int watch_deadline(self, Stream s) except -1:
        self.wheel.add(s)
        if not self.ticking:
            self.ticking = True
            self.loop.call_later(TICK_MS / 1000.0, self.tick)
        return 0

    def tick(self):
        """Acts on deadlines that have passed."""
        cdef Stream s
        for s in self.wheel.expired(monotonic_ns()):
            s.conn.expire(s)
        self.ticking = self.wheel.size > 0
        if self.ticking:
            self.loop.call_later(TICK_MS / 1000.0, self.tick)

    def sweep(self):
        """Looks after every connection: silence, handshakes, closing; `native.DoorServer` calls it regularly."""
        cdef Connection conn
        cdef int64_t now_ns = monotonic_ns()
        for conn in list(self.connections):
            look_after(conn, now_ns)

    # --- the end

    def no_connections(self):
        """A future that is done when the last connection is lost."""
        self.no_connections_waiter = self.loop.create_future()
        self.connection_gone()
        return self.no_connections_waiter

    def no_calls(self):
        """A future that is done when the last coroutine of a call has ended."""
        self.no_calls_waiter = self.loop.create_future()
        self.call_gone()
        return self.no_calls_waiter

    cdef int connection_gone(self) except -1:
        if self.no_connections_waiter is not None and not self.connections and not self.no_connections_waiter.done():
            self.no_connections_waiter.set_result(None)
        return 0

    cdef int call_gone(self) except -1:
        if self.no_calls_waiter is not None and not self.running and not self.no_calls_waiter.done():
            self.no_calls_waiter.set_result(None)
        return 0
