# Calls served by a coroutine: unary, server_stream, bidi.


@cython.final
cdef class Call:
    """`methods.Call` over a stream."""

    cdef Stream stream
    cdef object task
    cdef object reader  # future of the coroutine that waits for a request message
    cdef list writers  # futures of coroutines that wait for the client to read
    cdef bint started
    cdef bint cancelled

    @property
    def path(self):
        return self.stream.route.path

    @property
    def peer(self):
        return self.stream.conn.peer

    @property
    def secure(self):
        return self.stream.conn.secure

    def metadata(self):
        return self.stream.metadata()

    def header(self, str key):
        return self.stream.header(key)

    def time_remaining(self):
        return self.stream.time_remaining()

    # --- output

    async def send_initial_metadata(self, metadata=()):
        cdef Stream s = self.stream
        if s.flags & HEADERS_SENT:
            raise RuntimeError("response headers were sent already")
        pairs = encoded_pairs(metadata)
        if s.flags & (ENDED | CLOSED):
            return
        if pairs:
            submit_pairs(s, [(b":status", b"200"), (b"content-type", b"application/grpc")] + pairs, False, True)
        else:
            submit_plain_headers(s)
        s.conn.want_flush()

    def set_trailing_metadata(self, metadata):
        self.stream.trailing = encoded_pairs(metadata)

    async def write(self, bytes message not None):
        cdef Py_ssize_t size = len(message)
        cdef uint8_t *at
        if size > self.stream.conn.door.response_bytes_max:
            raise RpcError(
                _STATUS[RESOURCE_EXHAUSTED],
                f"response message of {size} bytes is larger than {self.stream.conn.door.response_bytes_max} bytes")
        framed = PyBytes_FromStringAndSize(NULL, size + 5)
        at = <uint8_t *>PyBytes_AS_STRING(framed)
        at[0] = 0
        at[1] = <uint8_t>(size >> 24)
        at[2] = <uint8_t>(size >> 16)
        at[3] = <uint8_t>(size >> 8)
        at[4] = <uint8_t>size
        memcpy(at + 5, PyBytes_AS_STRING(message), size)
        while self.must_wait():
            await self.room()
        self.push(framed, size)

    async def write_raw(self, bytes frames not None):
        cdef Py_ssize_t size = messages_size(frames, self.stream.conn.door.response_bytes_max)
        while self.must_wait():
            await self.room()
        if frames:
            self.push(frames, size)

    cdef inline bint must_wait(self) noexcept:
        cdef Stream s = self.stream
        return not s.flags & (ENDED | CLOSED) and (
            s.conn.paused or s.unsent >= s.conn.door.unsent_stream_max
            or s.conn.unsent >= s.conn.door.unsent_connection_max)

    cdef object room(self):
        """A future that is done when the client has read enough for more to be written."""
        future = self.stream.conn.door.loop.create_future()
        if self.writers is None:
            self.writers = []
        self.writers.append(future)
        self.stream.conn.waiting.add(self)
        return future

    cdef int push(self, bytes framed, Py_ssize_t size) except -1:
        cdef Stream s = self.stream
        if s.route.kind == KIND_UNARY:
            raise TypeError(f"{s.route.path} is unary, its handler returns the answer")
        if s.flags & (ENDED | CLOSED):
            return 0
        if s.queue is None:
            s.queue = deque()
        s.queue.append(framed)
        s.unsent += len(framed)
        s.conn.unsent += len(framed)
        s.bytes_out += size
        if s.flags & HEADERS_SENT:
            resume(s)
        else:
            submit_plain_headers(s)
        s.conn.want_flush()
        return 0

    cdef int wake_writers(self) noexcept:
        """Called by nghttp2's data source."""
        cdef Stream s = self.stream
        if s.unsent > s.conn.door.unsent_stream_max // 2 or s.conn.unsent > s.conn.door.unsent_connection_max // 2:
            return 0
        return self.release_writers()

    cdef int release_writers(self) noexcept:
        cdef list writers = self.writers
        if writers is None:
            return 0
        self.writers = None
        self.stream.conn.waiting.discard(self)
        for future in writers:
            if not future.done():
                future.set_result(None)
        return 0

    # --- input

    def __aiter__(self):
        if self.stream.inbox is None:
            raise TypeError(f"{self.path} has one request, which its handler was given")
        return self

    async def __anext__(self):
        cdef Stream s = self.stream
        while not s.inbox:
            if s.flags & (REQUEST_DONE | ENDED | CLOSED):
                raise StopAsyncIteration
            if self.reader is not None:
                raise RuntimeError("requests are read by two coroutines at once")
            self.reader = s.conn.door.loop.create_future()
            try:
                await self.reader
            finally:
                self.reader = None
        message = s.inbox.popleft()
        self.taken(len(message) + INBOX_ENTRY_BYTES)
        return message

    cdef int taken(self, Py_ssize_t size) except -1:
        """Gives window back for a message that has left the inbox."""
        cdef Stream s = self.stream
        if s.flags & CLOSED:
            return 0
        s.inbox_bytes -= size
        s.conn.inboxed -= size
        s.conn.door.inboxed -= size
        if s.withheld and s.inbox_bytes <= INBOX_BYTES_MAX:
            nghttp2_session_consume_stream(s.conn.session, s.id, s.withheld)
            s.withheld = 0
            s.conn.want_flush()
        if s.conn.consumed:
            give_window(s.conn)
            s.conn.want_flush()
        return 0

    cdef int wake_reader(self) except -1:
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)
        return 0

    # --- life

    cdef int cancel(self) except -1:
        """The client has gone, the deadline has passed, or the request is refused."""
        if not self.cancelled:
            self.cancelled = True
            if self.started and self.task is not None:
                self.task.cancel()
        return 0

    async def run(self):
        """The coroutine of the call's task; it ends the call in every case."""
        cdef Stream s = self.stream
        cdef int kind = s.route.kind
        self.started = True
        if self.cancelled:
            self.finished()
            return
        try:
            if kind == KIND_UNARY:
                request = s.body
                s.body = None
                response = await s.route.handler(request, self)
                if not isinstance(response, bytes):
                    raise TypeError(f"handler of {s.route.path} returned {type(response).__name__}, not bytes")
                answer_unary(s, response)
            else:
                if kind == KIND_SERVER_STREAM:
                    request = s.body
                    s.body = None
                    await s.route.handler(request, self)
                else:
                    await s.route.handler(self)
                end_call(s, OK, b"")
        except RpcError as refusal:
            end_call(s, refusal.status.value, percent_encoded(refusal.message))
        except asyncio.CancelledError:
            end_call(s, CANCELLED, b"cancelled")
            if not self.cancelled:
                raise
        except Exception:
            log.exception("handler of %s failed", s.route.path)
            end_call(s, INTERNAL, INTERNAL_TEXT)
        except BaseException:
            end_call(s, INTERNAL, INTERNAL_TEXT)
            raise
        finally:
            self.finished()

    cdef int finished(self) except -1:
        cdef Door door = self.stream.conn.door
        door.running.discard(self.task)
        if self.writers is not None:
            self.release_writers()
        self.task = None
        self.stream.call = None
        door.call_gone()
        return 0


cdef int start_call(Stream s) except -1:
    """Makes the task that serves a call."""
    cdef Call call = Call.__new__(Call)
    call.stream = s
    s.call = call
    call.task = s.conn.door.loop.create_task(call.run())
    s.conn.door.running.add(call.task)
    return 0


cdef Py_ssize_t messages_size(bytes frames, Py_ssize_t size_max) except -1:
    """Bytes of the messages in whole frames that are not compressed; ValueError for others."""
    cdef Py_ssize_t total = 0
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(frames)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(frames)
    cdef Py_ssize_t size
    while left:
        if left < 5:
            raise ValueError(f"frames end inside a prefix, {left} bytes left")
        if at[0] != 0:
            raise ValueError(f"frame has flag {at[0]}, only 0 (not compressed) can be written")
        size = (<Py_ssize_t>at[1] << 24) | (at[2] << 16) | (at[3] << 8) | at[4]
        if size > size_max:
            raise RpcError(
                _STATUS[RESOURCE_EXHAUSTED], f"response message of {size} bytes is larger than {size_max} bytes")
        if left - 5 < size:
            raise ValueError(f"frame of {size} bytes is cut short, {left - 5} bytes left")
        at += 5 + size
        left -= 5 + size
        total += size
    return total
