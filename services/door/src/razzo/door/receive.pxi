# From headers and DATA to request messages.

cdef enum:
    ASSEMBLY_BYTES = 16384  # first size of the buffer of a larger message: its length is only a claim
    INBOX_BYTES_MAX = 524288  # untaken messages of a bidi call; its stream's window is withheld above
    INBOX_ENTRY_BYTES = 64  # what an untaken message costs besides its bytes


cdef inline bint is_name(const uint8_t *name, size_t size, const char *wanted, size_t wanted_size) noexcept:
    return size == wanted_size and memcmp(name, wanted, size) == 0


cdef inline bint is_grpc_type(const uint8_t *value, size_t size) noexcept:
    return size >= 16 and memcmp(value, b"application/grpc", 16) == 0 and (
        size == 16 or value[16] == c'+' or value[16] == c';')


cdef int take_header(
    Stream s, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len) noexcept:
    """One request header; nghttp2 has checked its characters. -1 when memory is short."""
    cdef Connection conn = s.conn
    cdef int64_t timeout_ns
    s.header_bytes += name_len + value_len
    if s.header_bytes > conn.door.header_bytes_max:
        s.flags |= HEADERS_TOO_LARGE
        return 0
    if name_len == 0:
        return 0
    if name[0] == c':':
        if is_name(name, name_len, b":path", 5):
            return take_path(s, value, value_len)
        if is_name(name, name_len, b":method", 7) and not is_name(value, value_len, b"POST", 4):
            s.flags |= NOT_POST
        return 0
    if name[0] == c'c' and is_name(name, name_len, b"content-type", 12):
        if is_grpc_type(value, value_len):
            s.flags |= IS_GRPC
        return 0
    if name[0] == c't' and name_len == 2 and name[1] == c'e':
        return 0
    if name[0] == c'g' and name_len > 5 and memcmp(name, b"grpc-", 5) == 0:
        if is_name(name, name_len, b"grpc-timeout", 12):
            timeout_ns = parse_timeout(value, value_len)
            if timeout_ns < 0:
                s.flags |= BAD_TIMEOUT
            else:
                s.deadline_ns = s.begun_ns + timeout_ns
        elif is_name(name, name_len, b"grpc-encoding", 13):
            if is_name(value, value_len, b"gzip", 4):
                s.flags |= GZIP
            elif not is_name(value, value_len, b"identity", 8):
                s.flags |= BAD_ENCODING
        return 0
    return s.keep_header(name, name_len, value, value_len)


cdef int take_path(Stream s, const uint8_t *value, size_t size) noexcept:
    cdef Connection conn = s.conn
    cdef Route route = conn.last_route
    if route is not None and <size_t>PyBytes_GET_SIZE(route.path_bytes) == size and memcmp(
            PyBytes_AS_STRING(route.path_bytes), value, size) == 0:
        s.route = route
        return 0
    try:
        route = conn.door.routes.get(<bytes>value[:size])
    except MemoryError:
        return -1
    s.route = route
    if route is not None:
        conn.last_route = route
    return 0


cdef int headers_done(Stream s) except -1:
    """All request headers are here: refuses the call, or lets its messages come."""
    cdef Door door = s.conn.door
    if s.route is not None and door.count_calls:
        s.flags |= COUNTED
        s.route.begin()
    if s.flags & HEADERS_TOO_LARGE:
        refuse(s, RESOURCE_EXHAUSTED, b"request headers are larger than %d bytes" % door.header_bytes_max)
    elif s.flags & NOT_POST:
        refuse_http(s, 405)
    elif not s.flags & IS_GRPC:
        refuse_http(s, 415)
    elif s.route is None:
        refuse(s, UNIMPLEMENTED, b"unknown method")
    elif s.flags & BAD_TIMEOUT:
        refuse(s, INTERNAL, b"malformed grpc-timeout")
    elif s.flags & BAD_ENCODING:
        refuse(s, UNIMPLEMENTED, b"request compression is not supported, grpc-accept-encoding names what is")
    else:
        if s.deadline_ns:
            door.watch_deadline(s)
        if s.route.kind == KIND_BIDI:
            s.inbox = deque()
            s.conn.ready.append(s)
    return 0


cdef int take_data(Stream s, const uint8_t *data, Py_ssize_t size) except -1:
    """Bytes of the request body."""
    cdef Py_ssize_t n
    while size > 0 and not s.flags & DISCARDING:
        if s.prefix_len < 5:
            n = min(5 - s.prefix_len, size)
            memcpy(s.prefix + s.prefix_len, data, n)
            s.prefix_len += <int>n
            data += n
            size -= n
            if s.prefix_len == 5:
                begin_message(s)
            continue
        n = min(s.message_len - s.filled, size)
        if s.filled + n > s.assembling_cap:
            grow_message(s, s.filled + n)
        memcpy(PyBytes_AS_STRING(<object>s.assembling) + s.filled, data, n)
        s.filled += n
        data += n
        size -= n
        if s.filled == s.message_len:
            message_done(s)
    if s.prefix_len == 5 and not s.flags & DISCARDING:
        s.conn.incomplete += s.filled - s.charged
        s.conn.door.incomplete += s.filled - s.charged
        s.charged = s.filled
    return 0


cdef int begin_message(Stream s) except -1:
    """The five bytes before a message are here."""
    cdef Py_ssize_t size = (
        (<Py_ssize_t>s.prefix[1] << 24) | (s.prefix[2] << 16) | (s.prefix[3] << 8) | s.prefix[4])
    cdef Py_ssize_t size_max = s.conn.door.request_bytes_max
    if s.prefix[0] > 1:
        return refuse(s, INTERNAL, b"message flag byte is neither 0 nor 1")
    if s.prefix[0] == 1 and not s.flags & GZIP:
        return refuse(s, INTERNAL, b"compressed message without grpc-encoding")
    if size > size_max:
        return refuse(s, RESOURCE_EXHAUSTED, b"request message of %d bytes is larger than %d bytes" % (size, size_max))
    if s.messages > 0 and s.route.kind != KIND_BIDI:
        return refuse(s, INTERNAL, b"more than one request message")
    s.message_len = size
    s.filled = 0
    s.assembling_cap = size if size <= ASSEMBLY_BYTES else ASSEMBLY_BYTES
    message = PyBytes_FromStringAndSize(NULL, s.assembling_cap)
    Py_INCREF(message)
    s.assembling = <PyObject *>message
    if size == 0:
        message_done(s)
    return 0


cdef int grow_message(Stream s, Py_ssize_t need) except -1:
    cdef Py_ssize_t size = s.assembling_cap
    while size < need:
        size *= 2
    s.assembling_cap = min(size, s.message_len)
    _PyBytes_Resize(&s.assembling, s.assembling_cap)
    return 0


cdef int message_done(Stream s) except -1:
    message = <object>s.assembling
    Py_DECREF(message)
    s.assembling = NULL
    s.prefix_len = 0
    s.uncharge()
    if s.prefix[0] == 1:
        message = inflated(s, message)
        if message is None:
            return 0
    s.messages += 1
    s.bytes_in += len(message)
    if s.inbox is None:
        s.body = message
        return 0
    s.inbox.append(message)
    s.inbox_bytes += len(message) + INBOX_ENTRY_BYTES
    s.conn.inboxed += len(message) + INBOX_ENTRY_BYTES
    s.conn.door.inboxed += len(message) + INBOX_ENTRY_BYTES
    if s.call is not None:
        s.call.wake_reader()
    return 0


cdef object inflated(Stream s, bytes message):
    """A gzip message, inflated within the bound of a request message; None after refusing it."""
    cdef Py_ssize_t size_max = s.conn.door.request_bytes_max
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(message, size_max + 1)
    except zlib.error:
        refuse(s, INTERNAL, b"request message is not gzip")
        return None
    if len(plain) > size_max:
        refuse(s, RESOURCE_EXHAUSTED, b"request message inflates to more than %d bytes" % size_max)
        return None
    if not inflater.eof or inflater.unused_data:
        refuse(s, INTERNAL, b"request message is not one whole gzip member")
        return None
    return plain


cdef int request_done(Stream s) except -1:
    """The client half-closed."""
    s.flags |= REQUEST_DONE
    if s.flags & (ENDED | DISCARDING):
        return 0
    if s.prefix_len != 0:
        return refuse(s, INTERNAL, b"request ends inside a message")
    if s.route.kind == KIND_BIDI:
        if s.call is not None:
            s.call.wake_reader()
    elif s.messages == 0:
        return refuse(s, INTERNAL, b"request message is missing")
    else:
        s.conn.ready.append(s)
    return 0
