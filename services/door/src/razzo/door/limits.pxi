# Bounds that time, storms and greed reach; `server.DoorLimits` names them all.

cdef int64_t PING_ANSWER_NS_MAX = 20 * <int64_t>1000000000
cdef int64_t CLOSE_NS_MAX = 5 * <int64_t>1000000000  # from the last write to the end of the connection
cdef int64_t DEADLINE_SLACK_NS = 20 * <int64_t>1000000
cdef double EXCUSED_RESET_PRICE = 0.05  # deadline storms of 20 times `resets_per_s_max` are taken
cdef const uint8_t *DRAIN_PING = b"razzodrn"
cdef const uint8_t *ALIVE_PING = b"razzoliv"


cdef int keep_budget(Connection conn) except -1:
    """Half received messages above the budget: the youngest are refused, so that the older can become whole."""
    cdef PyObject *at
    cdef Stream s
    if conn.incomplete <= conn.door.buffered_max and conn.door.incomplete <= conn.door.buffered_total_max:
        return 0
    at = conn.newest
    while at != NULL and (
            conn.incomplete > conn.door.buffered_max or conn.door.incomplete > conn.door.buffered_total_max):
        s = <Stream>at
        at = s.older
        if s.charged:
            refuse(s, RESOURCE_EXHAUSTED, b"too many request bytes are buffered")
    return 0


cdef void give_window(Connection conn) noexcept:
    """Lets the peer send on, unless too much of what it sent lies here."""
    if conn.consumed and conn.incomplete + conn.inboxed <= conn.door.buffered_max and (
            conn.door.incomplete + conn.door.inboxed <= conn.door.buffered_total_max):
        nghttp2_session_consume_connection(conn.session, conn.consumed)
        conn.consumed = 0


cdef inline bint spend(double *tokens, int64_t *then_ns, int64_t now_ns, double rate, double price) noexcept:
    """Takes `price` tokens of a bucket that refills at `rate` a second and holds BURST_S seconds' worth."""
    tokens[0] = min(tokens[0] + (now_ns - then_ns[0]) / 1e9 * rate, BURST_S * rate)
    then_ns[0] = now_ns
    if tokens[0] < price:
        return False
    tokens[0] -= price
    return True


cdef inline bint is_excused(Stream s, int64_t now_ns) noexcept:
    """A reset that an honest client sends: its call was answered already, or its deadline has passed.

    The client's clock started before the headers were read here, by any time when this process or the network stood
    still. So the deadline may look a little ahead, or be unknown because headers and reset came in one read.
    """
    if s.flags & ENDED:
        return True
    return s.deadline_ns != 0 and (s.begun_ns == now_ns or s.deadline_ns - now_ns < DEADLINE_SLACK_NS)


cdef int count_reset(Connection conn, Stream s) except -1:
    """The client has reset a stream. One that it had no reason to reset counts whole (rapid reset, CVE-2023-44487)."""
    cdef double price = EXCUSED_RESET_PRICE if is_excused(s, conn.read_ns) else 1
    if not spend(&conn.reset_tokens, &conn.reset_ns, conn.read_ns, conn.door.resets_per_s_max, price):
        nghttp2_session_terminate_session(conn.session, NGHTTP2_ENHANCE_YOUR_CALM)
    return 0


cdef int take_ping(Connection conn, bint is_answer, const uint8_t *data) except -1:
    if is_answer:
        conn.ping_ns = 0
        if memcmp(data, DRAIN_PING, 8) == 0:
            conn.finish_drain()
    elif conn.answered:
        # gRPC's clients measure bandwidth with a ping per round trip while answers flow: those are free, as with gRPC's
        # own servers.
        conn.answered = False
    elif not spend(&conn.ping_tokens, &conn.pinged_ns, conn.read_ns, conn.door.pings_per_s_max, 1):
        nghttp2_session_terminate_session(conn.session, NGHTTP2_ENHANCE_YOUR_CALM)
    return 0


cdef int look_after(Connection conn, int64_t now_ns) except -1:
    """What time alone brings about; `Door.sweep` asks every connection."""
    cdef Door door = conn.door
    if conn.transport is None:
        return 0
    if conn.consumed and conn.session != NULL:
        give_window(conn)  # other connections may have made room
        conn.flush()
    if conn.closing:
        if now_ns - conn.closing_ns > CLOSE_NS_MAX:
            conn.abort()
    elif not conn.preface_seen:
        if now_ns - conn.made_ns > door.handshake_ns:
            conn.abort()
    elif conn.paused:
        if now_ns - conn.paused_ns > door.idle_ns:
            conn.abort()
    elif conn.open_streams == 0:
        if now_ns - conn.read_ns > door.idle_ns:
            conn.say_goaway()
            conn.flush()
    elif conn.ping_ns > conn.read_ns:
        if now_ns - conn.ping_ns > min(door.keepalive_ns, PING_ANSWER_NS_MAX):
            conn.abort()
    elif now_ns - conn.read_ns > door.keepalive_ns:
        conn.ping_ns = now_ns
        nghttp2_submit_ping(conn.session, NGHTTP2_FLAG_NONE, ALIVE_PING)
        conn.flush()
    return 0
