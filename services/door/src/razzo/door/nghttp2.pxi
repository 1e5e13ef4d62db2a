# The part of nghttp2's C interface the door uses (/usr/include/nghttp2/nghttp2.h, 1.52 or later; https://nghttp2.org/documentation/).

cdef extern from "nghttp2/nghttp2.h":
    ctypedef struct nghttp2_session:
        pass
    ctypedef struct nghttp2_session_callbacks:
        pass
    ctypedef struct nghttp2_option:
        pass

    ctypedef struct nghttp2_nv:
        uint8_t *name
        uint8_t *value
        size_t namelen
        size_t valuelen
        uint8_t flags

    ctypedef struct nghttp2_frame_hd:
        size_t length
        int32_t stream_id
        uint8_t type
        uint8_t flags

    ctypedef struct nghttp2_headers:
        int cat

    ctypedef struct nghttp2_ping:
        uint8_t opaque_data[8]

    ctypedef union nghttp2_frame:
        nghttp2_frame_hd hd
        nghttp2_headers headers
        nghttp2_ping ping

    ctypedef union nghttp2_data_source:
        int fd
        void *ptr

    ctypedef ssize_t (*nghttp2_data_source_read_callback)(
        nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length, uint32_t *data_flags,
        nghttp2_data_source *source, void *user_data) noexcept

    ctypedef struct nghttp2_data_provider:
        nghttp2_data_source source
        nghttp2_data_source_read_callback read_callback

    ctypedef struct nghttp2_settings_entry:
        int32_t settings_id
        uint32_t value

    ctypedef int (*nghttp2_send_data_callback)(
        nghttp2_session *session, nghttp2_frame *frame, const uint8_t *framehd, size_t length,
        nghttp2_data_source *source, void *user_data) noexcept

    enum:
        NGHTTP2_DATA
        NGHTTP2_HEADERS
        NGHTTP2_RST_STREAM
        NGHTTP2_SETTINGS
        NGHTTP2_PING
        NGHTTP2_HCAT_REQUEST
        NGHTTP2_FLAG_NONE
        NGHTTP2_FLAG_END_STREAM
        NGHTTP2_FLAG_ACK
        NGHTTP2_NV_FLAG_NONE
        NGHTTP2_NV_FLAG_NO_COPY_NAME
        NGHTTP2_NV_FLAG_NO_COPY_VALUE
        NGHTTP2_DATA_FLAG_EOF
        NGHTTP2_DATA_FLAG_NO_END_STREAM
        NGHTTP2_DATA_FLAG_NO_COPY
        NGHTTP2_ERR_DEFERRED
        NGHTTP2_ERR_CALLBACK_FAILURE
        NGHTTP2_ERR_NOMEM
        NGHTTP2_ERR_PAUSE
        NGHTTP2_NO_ERROR
        NGHTTP2_CANCEL
        NGHTTP2_ENHANCE_YOUR_CALM
        NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
        NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
        NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES

    int nghttp2_session_callbacks_new(nghttp2_session_callbacks **cbs)
    void nghttp2_session_callbacks_del(nghttp2_session_callbacks *cbs)
    void nghttp2_session_callbacks_set_on_begin_headers_callback(
        nghttp2_session_callbacks *cbs,
        int (*f)(nghttp2_session *, const nghttp2_frame *, void *) noexcept)
    void nghttp2_session_callbacks_set_on_header_callback(
        nghttp2_session_callbacks *cbs,
        int (*f)(nghttp2_session *, const nghttp2_frame *, const uint8_t *, size_t, const uint8_t *, size_t,
                 uint8_t, void *) noexcept)
    void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        nghttp2_session_callbacks *cbs,
        int (*f)(nghttp2_session *, uint8_t, int32_t, const uint8_t *, size_t, void *) noexcept)
    void nghttp2_session_callbacks_set_on_frame_recv_callback(
        nghttp2_session_callbacks *cbs, int (*f)(nghttp2_session *, const nghttp2_frame *, void *) noexcept)
    void nghttp2_session_callbacks_set_on_frame_send_callback(
        nghttp2_session_callbacks *cbs, int (*f)(nghttp2_session *, const nghttp2_frame *, void *) noexcept)
    void nghttp2_session_callbacks_set_on_stream_close_callback(
        nghttp2_session_callbacks *cbs, int (*f)(nghttp2_session *, int32_t, uint32_t, void *) noexcept)
    void nghttp2_session_callbacks_set_send_data_callback(
        nghttp2_session_callbacks *cbs, nghttp2_send_data_callback f)

    int nghttp2_option_new(nghttp2_option **option)
    void nghttp2_option_del(nghttp2_option *option)
    void nghttp2_option_set_no_auto_window_update(nghttp2_option *option, int val)
    void nghttp2_option_set_no_closed_streams(nghttp2_option *option, int val)
    void nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(nghttp2_option *option, int val)
    void nghttp2_option_set_stream_reset_rate_limit(nghttp2_option *option, uint64_t burst, uint64_t rate)

    ctypedef struct nghttp2_mem:
        void *mem_user_data
        void *(*malloc)(size_t size, void *mem_user_data) noexcept
        void (*free)(void *ptr, void *mem_user_data) noexcept
        void *(*calloc)(size_t nmemb, size_t size, void *mem_user_data) noexcept
        void *(*realloc)(void *ptr, size_t size, void *mem_user_data) noexcept

    int nghttp2_session_server_new3(
        nghttp2_session **session, const nghttp2_session_callbacks *cbs, void *user_data, const nghttp2_option *option,
        nghttp2_mem *mem)
    void nghttp2_session_del(nghttp2_session *session)
    ssize_t nghttp2_session_mem_recv(nghttp2_session *session, const uint8_t *data, size_t size)
    ssize_t nghttp2_session_mem_send(nghttp2_session *session, const uint8_t **data)
    int nghttp2_session_want_read(nghttp2_session *session)
    int nghttp2_session_want_write(nghttp2_session *session)
    void *nghttp2_session_get_stream_user_data(nghttp2_session *session, int32_t stream_id)
    int nghttp2_session_set_stream_user_data(nghttp2_session *session, int32_t stream_id, void *data)
    int nghttp2_session_set_local_window_size(
        nghttp2_session *session, uint8_t flags, int32_t stream_id, int32_t window_size)
    int nghttp2_session_consume_connection(nghttp2_session *session, size_t size)
    int nghttp2_session_consume_stream(nghttp2_session *session, int32_t stream_id, size_t size)
    int nghttp2_session_resume_data(nghttp2_session *session, int32_t stream_id)
    int32_t nghttp2_session_get_stream_remote_window_size(nghttp2_session *session, int32_t stream_id)
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session *session)

    int nghttp2_submit_settings(
        nghttp2_session *session, uint8_t flags, const nghttp2_settings_entry *iv, size_t niv)
    int nghttp2_submit_response(
        nghttp2_session *session, int32_t stream_id, const nghttp2_nv *nva, size_t nvlen,
        const nghttp2_data_provider *data_prd)
    int nghttp2_submit_trailer(nghttp2_session *session, int32_t stream_id, const nghttp2_nv *nva, size_t nvlen)
    int nghttp2_submit_rst_stream(
        nghttp2_session *session, uint8_t flags, int32_t stream_id, uint32_t error_code)
    int nghttp2_submit_ping(nghttp2_session *session, uint8_t flags, const uint8_t *opaque_data)
    int nghttp2_submit_shutdown_notice(nghttp2_session *session)
    int nghttp2_submit_goaway(
        nghttp2_session *session, uint8_t flags, int32_t last_stream_id, uint32_t error_code,
        const uint8_t *opaque_data, size_t opaque_data_len)
    int nghttp2_session_terminate_session(nghttp2_session *session, uint32_t error_code)
    const char *nghttp2_strerror(int lib_error_code)
