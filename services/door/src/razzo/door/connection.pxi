# One client connection: an asyncio.BufferedProtocol around one nghttp2 session.
#
# A read runs to its end in `buffer_updated`: nghttp2 takes the bytes, batches go to their handlers, answers leave in one
# write. Answers given later mark the connection dirty; `Door.flush_dirty` writes once for each loop iteration.

cdef enum:
    WRITE_BYTES = 1048576  # of one connection in one loop iteration; the rest waits for the next
    HIGH_WATER_BYTES = 1048576  # the transport's own buffer; a small one would pause at every burst
    BURST_S = 5  # seconds of pings or resets that may come at once



cdef class Connection:
    cdef Door door
    cdef object transport
    cdef readonly str peer
    cdef readonly bint secure
    cdef nghttp2_session *session
    cdef PyObject *newest  # head of the list of open streams, which owns a reference to each
    cdef readonly Py_ssize_t open_streams
    cdef PyObject *opening  # stream whose headers are coming in, borrowed
    cdef Route last_route
    cdef list ready  # streams with a whole request, in arrival order
    cdef list doomed  # calls to be cancelled when nghttp2 has returned
    cdef set waiting  # calls whose writers wait for room
    cdef object fault  # exception of a callback
    cdef bint busy  # inside nghttp2 or a batch: answers wait for the flush at its end
    cdef bint dirty
    cdef bint paused
    cdef bint preface_seen
    cdef bint drain_noticed
    cdef bint drain_done
    cdef readonly bint closing
    cdef Py_ssize_t incomplete  # bytes of half received messages
    cdef Py_ssize_t inboxed  # bytes of bidi messages not yet taken
    cdef Py_ssize_t consumed  # bytes of the connection's window not yet given back
    cdef Py_ssize_t unsent
    cdef int64_t made_ns
    cdef int64_t read_ns
    cdef int64_t paused_ns
    cdef int64_t ping_ns  # when our unanswered ping left, 0: none
    cdef int64_t closing_ns
    cdef double reset_tokens
    cdef int64_t reset_ns
    cdef double ping_tokens
    cdef bint answered  # HEADERS or DATA went out since the last ping
    cdef int64_t pinged_ns

    def __cinit__(self, Door door, bint secure):
        self.door = door
        self.secure = secure
        self.session = NULL
        self.ready = []
        self.doomed = []
        self.waiting = set()
        self.read_ns = self.made_ns = self.reset_ns = self.pinged_ns = monotonic_ns()
        self.reset_tokens = BURST_S * door.resets_per_s_max
        self.ping_tokens = BURST_S * door.pings_per_s_max

    def __dealloc__(self):
        if self.session != NULL:
            nghttp2_session_del(self.session)

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport):
        self.transport = transport
        self.peer = peer_name(transport.get_extra_info("peername"))
        self.door.connections.add(self)
        if self.secure:
            tls = transport.get_extra_info("ssl_object")
            if tls is None or tls.selected_alpn_protocol() != "h2":
                self.abort()
                return
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.session = open_session(self)
        self.flush()

    def get_buffer(self, sizehint):
        return self.door.read_view

    def buffer_updated(self, Py_ssize_t size):
        self.receive(<const uint8_t *>PyByteArray_AS_STRING(self.door.read_buffer), size)

    def data_received(self, bytes data not None):
        """The same as `buffer_updated`, for a caller that has the bytes already."""
        self.receive(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def eof_received(self):
        return False  # a client that has closed its side reads no answers

    def pause_writing(self):
        self.paused = True
        self.paused_ns = monotonic_ns()
        self.transport.pause_reading()

    def resume_writing(self):
        self.paused = False
        if self.closing:
            return
        self.transport.resume_reading()
        self.flush()

    def connection_lost(self, error):
        cdef Stream s
        self.closing = True
        self.door.connections.discard(self)
        while self.newest != NULL:
            s = <Stream>self.newest
            self.close_stream(s)
        if self.session != NULL and not self.busy:
            nghttp2_session_del(self.session)
            self.session = NULL
        self.ready = []
        self.cancel_doomed()
        self.transport = None
        self.door.connection_gone()

    # --- input

    cdef int receive(self, const uint8_t *data, Py_ssize_t size) except -1:
        cdef ssize_t rv
        if self.session == NULL or self.closing:
            return 0
        self.read_ns = monotonic_ns()
        self.busy = True
        try:
            rv = nghttp2_session_mem_recv(self.session, data, size)
            if self.fault is not None:
                log.error("connection of %s is closed by a fault of the door", self.peer, exc_info=self.fault)
                rv = NGHTTP2_ERR_CALLBACK_FAILURE
            if rv >= 0:
                keep_budget(self)
                give_window(self)
                if self.ready:
                    self.dispatch()
            self.cancel_doomed()
        finally:
            self.busy = False
        self.flush()
        if rv < 0:
            log.debug("connection of %s ends: %s", self.peer, nghttp2_strerror(<int>rv).decode())
            self.close()
        return 0

    cdef int dispatch(self) except -1:
        """Hands whole requests to their handlers: one call of a batch handler for all calls of its method."""
        cdef list ready, routes, batch
        cdef Stream s
        cdef Route route
        cdef Py_ssize_t at
        if self.unsent > self.door.unsent_connection_max:
            return 0  # they wait until the client has read
        ready = self.ready
        self.ready = []
        routes = []
        for s in ready:
            if s.flags & (ENDED | CLOSED | DISPATCHED):
                continue
            s.flags |= DISPATCHED
            if self.door.authenticate is not None and not self.door.admits(s):
                continue
            if s.route.kind == KIND_BATCH:
                if not s.route.gathered:
                    routes.append(s.route)
                s.route.gathered.append(s)
            else:
                start_call(s)
        for route in routes:
            batch = route.gathered
            route.gathered = []
            if len(batch) <= self.door.batch_max:
                self.door.run_batch(route, batch)
                continue
            for at in range(0, len(batch), self.door.batch_max):
                self.door.run_batch(route, batch[at : at + self.door.batch_max])
        return 0

    cdef int cancel_doomed(self) except -1:
        cdef list doomed
        cdef Call call
        if self.doomed:
            doomed = self.doomed
            self.doomed = []
            for call in doomed:
                call.cancel()
        return 0

    # --- output

    cdef inline int want_flush(self) except -1:
        if not self.busy and not self.dirty:
            self.dirty = True
            self.door.mark_dirty(self)
        return 0

    cdef int flush(self) except -1:
        """Writes what nghttp2 has to send, as far as the client reads."""
        cdef ssize_t size = 0
        cdef Py_ssize_t written = 0
        cdef bint more = True
        cdef Door door = self.door
        if self.session == NULL or self.closing or self.paused or self.busy:
            return 0
        self.busy = True
        try:
            while more and written < WRITE_BYTES and not self.paused:
                door.open_out(self.unsent)
                size = self.fill()
                more = door.held > OUT_BYTES - FRAME_BYTES_MAX
                if door.held:
                    written += door.held
                    self.transport.write(door.close_out())
        finally:
            self.busy = False
        self.cancel_doomed()
        if size < 0 or self.fault is not None:
            log.error("cannot send to %s: %s", self.peer, nghttp2_strerror(<int>size).decode(), exc_info=self.fault)
            self.abort()
            return 0
        if written >= WRITE_BYTES and not self.paused:
            self.want_flush()
        elif not nghttp2_session_want_read(self.session) and not nghttp2_session_want_write(self.session):
            self.close()
        if self.waiting:
            self.wake_writers()
        if self.ready and not self.closing:
            self.dispatch()
        return 0

    cdef ssize_t fill(self) noexcept:
        """Frames into `door.out`, until there are no more or it is full; below 0 is an error of nghttp2.

        DATA goes there by `send_data`, the others by what `mem_send` gives.
        """
        cdef const uint8_t *data = NULL
        cdef ssize_t size
        cdef Door door = self.door
        while door.held <= OUT_BYTES - FRAME_BYTES_MAX:
            size = nghttp2_session_mem_send(self.session, &data)
            if size <= 0:
                return size
            if size > OUT_BYTES - door.held:
                return NGHTTP2_ERR_NOMEM
            memcpy(door.out + door.held, data, size)
            door.held += size
        return 0

    cdef int wake_writers(self) except -1:
        """Writers that waited for the connection, not for their own stream."""
        cdef Call call
        for call in list(self.waiting):
            if not call.must_wait():
                call.release_writers()
        return 0

    cdef int close(self) except -1:
        """Closes when what was written is sent; `look_after` aborts a client that does not read it."""
        if not self.closing:
            self.closing = True
            self.closing_ns = monotonic_ns()
            self.transport.close()
        return 0

    cpdef abort(self):
        """Ends the connection now."""
        self.closing = True
        self.closing_ns = monotonic_ns()
        if self.transport is not None:
            self.transport.abort()

    # --- streams

    cdef void link(self, Stream s) noexcept:
        Py_INCREF(s)
        s.older = self.newest
        if self.newest != NULL:
            (<Stream>self.newest).newer = <PyObject *>s
        self.newest = <PyObject *>s
        self.open_streams += 1

    cdef int close_stream(self, Stream s) except -1:
        """The stream is over: reset, finished, or its connection is lost."""
        if s.newer != NULL:
            (<Stream>s.newer).older = s.older
        else:
            self.newest = s.older
        if s.older != NULL:
            (<Stream>s.older).newer = s.newer
        s.newer = NULL
        s.older = NULL
        self.open_streams -= 1
        s.flags |= CLOSED
        s.uncharge()
        drop_output(s)
        self.inboxed -= s.inbox_bytes
        self.door.inboxed -= s.inbox_bytes
        s.inbox_bytes = 0
        if not s.flags & ENDED:
            s.settle(CANCELLED)
        if s.call is not None:
            self.doomed.append(s.call)
            s.call = None
        Py_DECREF(s)
        return 0

    cdef int expire(self, Stream s) except -1:
        """The deadline of a call has passed."""
        if s.flags & (ENDED | CLOSED):
            return 0
        drop_output(s)
        refuse(s, DEADLINE_EXCEEDED, b"deadline exceeded")
        if s.flags & HEADERS_SENT and nghttp2_session_get_stream_remote_window_size(self.session, s.id) <= 0:
            # the status would wait behind a window that a client past its deadline may never open
            nghttp2_submit_rst_stream(self.session, NGHTTP2_FLAG_NONE, s.id, NGHTTP2_CANCEL)
        self.cancel_doomed()
        return 0

    # --- the end

    cdef int say_goaway(self) except -1:
        self.drain_done = True
        nghttp2_submit_goaway(
            self.session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(self.session),
            NGHTTP2_NO_ERROR, NULL, 0)
        return 0

    cpdef begin_drain(self):
        """Tells the client to open no more calls here. Calls already on their way are still taken: the final GOAWAY
        goes out when our ping has come back."""
        if self.session == NULL or self.closing or self.drain_noticed:
            return
        self.drain_noticed = True
        nghttp2_submit_shutdown_notice(self.session)
        nghttp2_submit_ping(self.session, NGHTTP2_FLAG_NONE, DRAIN_PING)
        self.want_flush()

    cpdef finish_drain(self):
        """The final GOAWAY; the connection closes when its last call has ended."""
        if self.session == NULL or self.closing or self.drain_done:
            return
        self.say_goaway()
        self.want_flush()

    cpdef cut(self):
        """Ends every call with UNAVAILABLE, then the connection."""
        if self.session == NULL or self.closing:
            return
        cdef PyObject *at = self.newest
        cdef Stream s
        if not self.drain_done:
            self.say_goaway()
        while at != NULL:
            s = <Stream>at
            at = s.older
            refuse(s, UNAVAILABLE, b"the server is stopping")
        self.flush()
        self.cancel_doomed()
        self.close()


class DoorProtocol(Connection, asyncio.BufferedProtocol):
    """`Connection` in a form that event loops recognize."""

    __slots__ = ()


cdef str peer_name(address):
    """gRPC's way to write an address; IPv4 that came to an IPv6 socket is IPv4."""
    if not isinstance(address, tuple):
        return f"unix:{address}" if address else "unknown"
    host = address[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return f"ipv6:[{host}]:{address[1]}" if ":" in host else f"ipv4:{host}:{address[1]}"
