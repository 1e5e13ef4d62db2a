# The nghttp2 session of one connection: options, settings, and the callbacks, which only collect. Handlers run after
# nghttp2 has returned, never inside a callback.

cdef enum:
    CONNECTION_WINDOW_BYTES = 16777216  # 64 KiB windows would stall pipelined sends
    STREAM_WINDOW_BYTES = 1048576

cdef nghttp2_session_callbacks *CALLBACKS = NULL
cdef nghttp2_mem MEMORY  # Python's allocator: nghttp2 makes many small objects for a call


cdef void *memory_malloc(size_t size, void *user_data) noexcept:
    return PyMem_Malloc(size)


cdef void memory_free(void *at, void *user_data) noexcept:
    PyMem_Free(at)


cdef void *memory_calloc(size_t count, size_t size, void *user_data) noexcept:
    return PyMem_Calloc(count, size)


cdef void *memory_realloc(void *at, size_t size, void *user_data) noexcept:
    return PyMem_Realloc(at, size)


MEMORY.mem_user_data = NULL
MEMORY.malloc = memory_malloc
MEMORY.free = memory_free
MEMORY.calloc = memory_calloc
MEMORY.realloc = memory_realloc


cdef int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Connection conn
    cdef Stream s
    if frame.headers.cat != NGHTTP2_HCAT_REQUEST:
        return 0
    conn = <Connection>user_data
    try:
        s = Stream.__new__(Stream)
    except MemoryError:
        return NGHTTP2_ERR_CALLBACK_FAILURE
    s.conn = conn
    s.id = frame.hd.stream_id
    s.begun_ns = conn.read_ns
    conn.link(s)
    conn.opening = <PyObject *>s
    nghttp2_session_set_stream_user_data(session, s.id, <void *>s)
    return 0


cdef int on_header(
    nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
    const uint8_t *value, size_t value_len, uint8_t flags, void *user_data) noexcept:
    cdef PyObject *opening = (<Connection>user_data).opening
    if opening == NULL:
        return 0  # trailers of a request: gRPC clients send none
    if take_header(<Stream>opening, name, name_len, value, value_len) < 0:
        return NGHTTP2_ERR_CALLBACK_FAILURE
    return 0


cdef int on_data_chunk(
    nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size,
    void *user_data) noexcept:
    cdef Connection conn = <Connection>user_data
    cdef void *found = nghttp2_session_get_stream_user_data(session, stream_id)
    cdef Stream s
    conn.consumed += size
    if found == NULL:
        return 0
    s = <Stream>found
    try:
        take_data(s, data, size)
        if not flags & NGHTTP2_FLAG_END_STREAM:
            if s.inbox_bytes > INBOX_BYTES_MAX and not s.flags & DISCARDING:
                s.withheld += size
            else:
                nghttp2_session_consume_stream(session, stream_id, size)
        return 0
    except BaseException as error:
        conn.fault = error
        return NGHTTP2_ERR_CALLBACK_FAILURE


cdef int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    cdef Connection conn = <Connection>user_data
    cdef void *found
    try:
        if frame.hd.type == NGHTTP2_HEADERS or frame.hd.type == NGHTTP2_DATA:
            found = nghttp2_session_get_stream_user_data(session, frame.hd.stream_id)
            if found == NULL:
                return 0
            if frame.hd.type == NGHTTP2_HEADERS and conn.opening == <PyObject *>found:
                conn.opening = NULL
                headers_done(<Stream>found)
            if frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
                request_done(<Stream>found)
        elif frame.hd.type == NGHTTP2_RST_STREAM:
            found = nghttp2_session_get_stream_user_data(session, frame.hd.stream_id)
            if found != NULL:
                count_reset(conn, <Stream>found)
        elif frame.hd.type == NGHTTP2_PING:
            take_ping(conn, frame.hd.flags & NGHTTP2_FLAG_ACK, frame.ping.opaque_data)
        elif frame.hd.type == NGHTTP2_SETTINGS:
            conn.preface_seen = True
        return 0
    except BaseException as error:
        conn.fault = error
        return NGHTTP2_ERR_CALLBACK_FAILURE


cdef int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) noexcept:
    """An answer that ended before its request did: asks the client to stop sending.

    Only here: submitted earlier, RST_STREAM would overtake the answer and the client would never see its status.
    """
    cdef void *found
    if frame.hd.type == NGHTTP2_HEADERS or frame.hd.type == NGHTTP2_DATA:
        (<Connection>user_data).answered = True
    if frame.hd.type != NGHTTP2_HEADERS or not frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
        return 0
    found = nghttp2_session_get_stream_user_data(session, frame.hd.stream_id)
    if found != NULL and not (<Stream>found).flags & REQUEST_DONE:
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame.hd.stream_id, NGHTTP2_NO_ERROR)
    return 0


cdef int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user_data) noexcept:
    cdef Connection conn = <Connection>user_data
    cdef void *found = nghttp2_session_get_stream_user_data(session, stream_id)
    if found == NULL:
        return 0
    if conn.opening == <PyObject *>found:
        conn.opening = NULL
    try:
        conn.close_stream(<Stream>found)
        return 0
    except BaseException as error:
        conn.fault = error
        return NGHTTP2_ERR_CALLBACK_FAILURE


cdef int make_callbacks() except -1:
    global CALLBACKS
    if nghttp2_session_callbacks_new(&CALLBACKS) != 0:
        raise MemoryError
    nghttp2_session_callbacks_set_on_begin_headers_callback(CALLBACKS, on_begin_headers)
    nghttp2_session_callbacks_set_on_header_callback(CALLBACKS, on_header)
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(CALLBACKS, on_data_chunk)
    nghttp2_session_callbacks_set_on_frame_recv_callback(CALLBACKS, on_frame_recv)
    nghttp2_session_callbacks_set_on_frame_send_callback(CALLBACKS, on_frame_send)
    nghttp2_session_callbacks_set_on_stream_close_callback(CALLBACKS, on_stream_close)
    nghttp2_session_callbacks_set_send_data_callback(CALLBACKS, send_data)
    return 0


make_callbacks()


cdef nghttp2_session *open_session(Connection conn) except NULL:
    """A server session with the door's settings submitted; the caller deletes it."""
    cdef nghttp2_session *session = NULL
    cdef nghttp2_option *option = NULL
    cdef nghttp2_settings_entry settings[4]
    cdef Door door = conn.door
    if nghttp2_option_new(&option) != 0:
        raise MemoryError
    nghttp2_option_set_no_auto_window_update(option, 1)
    nghttp2_option_set_no_closed_streams(option, 1)
    # gRPC's own servers take values with spaces around them, and some clients send such
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1)
    # the door counts resets itself (`count_reset`); nghttp2's own limit, 33 a second, would punish
    # clients whose deadlines pass under load
    cdef uint64_t resets_per_s = <uint64_t>(2 * door.resets_per_s_max / EXCUSED_RESET_PRICE) + 1000
    nghttp2_option_set_stream_reset_rate_limit(option, BURST_S * resets_per_s, resets_per_s)
    cdef int rv = nghttp2_session_server_new3(&session, CALLBACKS, <void *>conn, option, &MEMORY)
    nghttp2_option_del(option)
    if rv != 0:
        raise MemoryError
    settings[0].settings_id = NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
    settings[0].value = door.streams_max
    settings[1].settings_id = NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
    settings[1].value = STREAM_WINDOW_BYTES
    settings[2].settings_id = NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
    settings[2].value = <uint32_t>min(door.header_bytes_max, <size_t>0x7FFFFFFF)
    settings[3].settings_id = NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES
    settings[3].value = 1
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, 4)
    nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES)
    return session
