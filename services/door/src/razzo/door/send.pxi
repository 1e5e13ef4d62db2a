# From answers to HTTP/2 frames: response headers, the data source nghttp2 reads from, trailers.

cdef uint8_t NO_COPY = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE
cdef nghttp2_nv RESPONSE_HEADERS[2]
cdef nghttp2_nv OK_TRAILER[1]
cdef tuple STATUS_TEXTS = tuple(b"%d" % number for number in range(STATUSES))


cdef inline void set_nv(nghttp2_nv *nv, const char *name, size_t name_len, const char *value, size_t value_len,
                        uint8_t flags) noexcept:
    nv.name = <uint8_t *>name
    nv.namelen = name_len
    nv.value = <uint8_t *>value
    nv.valuelen = value_len
    nv.flags = flags


set_nv(&RESPONSE_HEADERS[0], b":status", 7, b"200", 3, NO_COPY)
set_nv(&RESPONSE_HEADERS[1], b"content-type", 12, b"application/grpc", 16, NO_COPY)
set_nv(&OK_TRAILER[0], b"grpc-status", 11, b"0", 1, NO_COPY)


cdef int submit_pairs(Stream s, list pairs, bint as_trailer, bint with_body) except -1:
    """Submits headers or trailers from (name, value) pairs of bytes; nghttp2 copies them."""
    cdef size_t count = len(pairs)
    cdef size_t i
    cdef bytes name, value
    cdef int rv
    cdef nghttp2_data_provider provider
    cdef nghttp2_nv *nva = <nghttp2_nv *>malloc(count * sizeof(nghttp2_nv))
    if nva == NULL:
        raise MemoryError
    for i in range(count):
        name, value = pairs[i]
        set_nv(&nva[i], PyBytes_AS_STRING(name), len(name), PyBytes_AS_STRING(value), len(value), 0)
    if as_trailer:
        rv = nghttp2_submit_trailer(s.conn.session, s.id, nva, count)
    else:
        provider.source.ptr = <void *>s
        provider.read_callback = read_body
        rv = nghttp2_submit_response(s.conn.session, s.id, nva, count, &provider if with_body else NULL)
        s.flags |= HEADERS_SENT
    free(nva)
    if rv == NGHTTP2_ERR_NOMEM:
        raise MemoryError
    return rv


cdef inline void submit_plain_headers(Stream s) noexcept:
    cdef nghttp2_data_provider provider
    provider.source.ptr = <void *>s
    provider.read_callback = read_body
    nghttp2_submit_response(s.conn.session, s.id, RESPONSE_HEADERS, 2, &provider)
    s.flags |= HEADERS_SENT


cdef list status_pairs(Stream s):
    cdef list pairs = [(b"grpc-status", STATUS_TEXTS[s.status])]
    if s.text:
        pairs.append((b"grpc-message", s.text))
    if s.trailing is not None:
        pairs.extend(s.trailing)
    return pairs


cdef ssize_t read_body(
    nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length, uint32_t *data_flags,
    nghttp2_data_source *source, void *user_data) noexcept:
    """nghttp2 asks how many bytes of a response body come next; the trailers follow the last of them.

    nghttp2 calls `send_data` for them before anything else can happen.
    """
    cdef Stream s = <Stream>source.ptr
    cdef Py_ssize_t size = min(<Py_ssize_t>length, s.unsent)
    s.unsent -= size
    s.conn.unsent -= size
    if s.call is not None and s.call.writers is not None:
        s.call.wake_writers()
    if s.unsent == 0:
        if s.flags & ENDED:
            data_flags[0] |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM
            submit_trailers(s)
        elif size == 0:
            s.flags |= DEFERRED
            return NGHTTP2_ERR_DEFERRED
    if size:
        data_flags[0] |= NGHTTP2_DATA_FLAG_NO_COPY
    return size


cdef int send_data(
    nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t length, nghttp2_data_source *source,
    void *user_data) noexcept:
    """Puts one DATA frame behind what the connection is about to write; `Connection.flush` leaves room for it."""
    cdef Stream s = <Stream>source.ptr
    cdef Door door = s.conn.door
    cdef uint8_t *out = door.out + door.held
    cdef Py_ssize_t left = length
    cdef Py_ssize_t n
    memcpy(out, head, FRAME_HEAD_BYTES)
    out += FRAME_HEAD_BYTES
    if s.head_prefix_left:
        n = min(left, s.head_prefix_left)
        memcpy(out, s.head_prefix + (5 - s.head_prefix_left), n)
        s.head_prefix_left -= <int>n
        out += n
        left -= n
    while left:
        if s.head is None:
            s.head = s.queue.popleft()
            s.head_sent = 0
        n = min(left, PyBytes_GET_SIZE(s.head) - s.head_sent)
        memcpy(out, PyBytes_AS_STRING(s.head) + s.head_sent, n)
        s.head_sent += n
        out += n
        left -= n
        if s.head_sent == PyBytes_GET_SIZE(s.head):
            s.head = None
    door.held += FRAME_HEAD_BYTES + length
    return NGHTTP2_ERR_PAUSE if door.held > OUT_BYTES - FRAME_BYTES_MAX else 0


cdef int submit_trailers(Stream s) noexcept:
    if s.status == OK and s.trailing is None:
        return nghttp2_submit_trailer(s.conn.session, s.id, OK_TRAILER, 1)
    try:
        return submit_pairs(s, status_pairs(s), True, False)
    except BaseException as error:
        s.conn.fault = error
        return NGHTTP2_ERR_CALLBACK_FAILURE


cdef inline void resume(Stream s) noexcept:
    if s.flags & DEFERRED:
        s.flags &= ~<uint32_t>DEFERRED
        nghttp2_session_resume_data(s.conn.session, s.id)


cdef int answer_unary(Stream s, bytes response) except -1:
    """Status OK with one message."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(response)
    if s.flags & (ENDED | CLOSED):
        return 0
    if size > s.conn.door.response_bytes_max:
        return end_call(s, RESOURCE_EXHAUSTED, b"response message of %d bytes is larger than %d bytes" % (
            size, s.conn.door.response_bytes_max))
    s.head = response
    s.head_sent = 0
    s.head_prefix[0] = 0
    s.head_prefix[1] = <uint8_t>(size >> 24)
    s.head_prefix[2] = <uint8_t>(size >> 16)
    s.head_prefix[3] = <uint8_t>(size >> 8)
    s.head_prefix[4] = <uint8_t>size
    s.head_prefix_left = 5
    s.unsent += size + 5
    s.conn.unsent += size + 5
    s.bytes_out += size
    s.body = None
    s.settle(OK)
    if s.flags & HEADERS_SENT:
        resume(s)
    else:
        submit_plain_headers(s)
    s.conn.want_flush()
    return 0


cdef int end_call(Stream s, int status, bytes text) except -1:
    """Ends a call with a status, after the messages already written."""
    if s.flags & (ENDED | CLOSED):
        return 0
    s.text = text
    s.settle(status)
    if not s.flags & REQUEST_DONE:
        s.drop_request()
    if s.flags & HEADERS_SENT:
        resume(s)
    else:
        pairs = [(b":status", b"200"), (b"content-type", b"application/grpc")]
        if s.flags & BAD_ENCODING:
            pairs.append((b"grpc-accept-encoding", b"identity,gzip"))
        submit_pairs(s, pairs + status_pairs(s), False, False)
    s.conn.want_flush()
    return 0


cdef int refuse(Stream s, int status, bytes text) except -1:
    """Ends a call for a fault of its request; a coroutine that serves it already is cancelled."""
    s.drop_request()
    end_call(s, status, text)
    if s.call is not None:
        s.conn.doomed.append(s.call)
    return 0


cdef int refuse_http(Stream s, int http_status) except -1:
    """Ends a request that is not gRPC with an HTTP status."""
    s.drop_request()
    s.settle(UNKNOWN)
    submit_pairs(s, [(b":status", b"%d" % http_status)], False, False)
    s.conn.want_flush()
    return 0


cdef void drop_output(Stream s) noexcept:
    """Forgets what was written but not sent."""
    s.conn.unsent -= s.unsent
    s.unsent = 0
    s.head = None
    s.head_prefix_left = 0
    if s.queue is not None:
        s.queue = None
