# Stored records to the elements of a ReceiveMessage stream (apache.rocketmq.v2), framed for gRPC. As on the way in, the
# plain message only: a record with anything unusual comes back as None, and the caller's slow path encodes it.

cdef extern from "md5_lanes.h" nogil:
    void md5_many(const uint8_t** data, const uint64_t* size, char** out, int n)

cdef enum:
    FRAME_HEAD_BYTES = 5
    MD5_HEX_BYTES = 32
    DIGEST_TYPE_MD5 = 2
    # Everything in SystemProperties but tag, keys, ids, hosts, trace context and handle: numbers, times, digest, field keys.
    SYSTEM_FIXED_BYTES = 224
    FRAMES_AT_ONCE_MAX = 1024

cdef inline Py_ssize_t time_size(int64_t ms) noexcept nogil:
    """Of a Timestamp or Duration, for ms >= 0."""
    cdef Py_ssize_t size = 0
    if ms >= 1000:
        size += 1 + varint_size(ms // 1000)
    if ms % 1000:
        size += 1 + varint_size((ms % 1000) * 1000000)
    return size


cdef inline uint8_t* put_time(uint8_t* out, uint8_t key, int64_t ms) noexcept nogil:
    out = put_number(out, key, time_size(ms))
    if ms >= 1000:
        out = put_number(out, 0x08, ms // 1000)
    if ms % 1000:
        out = put_number(out, 0x10, (ms % 1000) * 1000000)
    return out


cdef Py_ssize_t put_ipv4_host(uint8_t* out, const uint8_t* packed) noexcept nogil:
    """Four bytes of address and an i32 port as "a.b.c.d:port"; at most 21 characters for a port below 65536."""
    cdef uint8_t* at = out
    cdef int i
    cdef uint32_t port = rz_get32(<const char*>packed + 4)
    for i in range(4):
        at = put_decimal(at, packed[i])
        at[0] = c"." if i < 3 else c":"
        at += 1
    return put_decimal(at, port) - out


cdef inline uint8_t* put_decimal(uint8_t* out, uint32_t value) noexcept nogil:
    cdef uint8_t digits[10]
    cdef int n = 0
    while True:
        digits[n] = <uint8_t>(48 + value % 10)
        n += 1
        value //= 10
        if not value:
            break
    while n:
        n -= 1
        out[0] = digits[n]
        out += 1
    return out


cdef struct StoredView:
    Span tag
    Span keys                       # separated by spaces
    Span message_id
    Span born_host
    Span trace_context
    Py_ssize_t user_bytes           # of all user properties as map entries, keys and lengths included


cdef inline bint span_is(Span span, const char* text, Py_ssize_t size) noexcept nogil:
    return span.size == size and memcmp(span.at, text, size) == 0


cdef inline bint next_property(const uint8_t** at, const uint8_t* end, Span* name, Span* value) noexcept nogil:
    """The next entry with a name and a value; False at the end."""
    cdef const uint8_t* stop
    cdef const uint8_t* middle
    while at[0] < end:
        stop = <const uint8_t*>memchr(at[0], 2, end - at[0])
        if stop == NULL:
            stop = end
        middle = <const uint8_t*>memchr(at[0], 1, stop - at[0])
        name.at = at[0]
        at[0] = stop + 1
        if middle == NULL or middle == name.at or middle + 1 == stop:
            continue
        name.size = middle - name.at
        value.at = middle + 1
        value.size = stop - value.at
        return True
    return False


cdef int walk_stored(const uint8_t* properties, Py_ssize_t size, const NameFilter* reserved, StoredView* view) noexcept nogil:
    """Sorts the properties of a record; NOT_HOT when one of them means more than text."""
    cdef const uint8_t* at = properties
    cdef const uint8_t* end = properties + size
    cdef Span name, value
    cdef Py_ssize_t entry
    memset(view, 0, sizeof(StoredView))
    while next_property(&at, end, &name, &value):
        if text_class(name) != TEXT_PLAIN or text_class(value) != TEXT_PLAIN:
            return NOT_HOT
        if not name_may_be_in(reserved, name):
            entry = 2 + varint_size(name.size) + name.size + varint_size(value.size) + value.size
            view.user_bytes += 1 + varint_size(entry) + entry
        elif span_is(name, b"UNIQ_KEY", 8):
            view.message_id = value
        elif span_is(name, b"TAGS", 4):
            view.tag = value
        elif span_is(name, b"KEYS", 4):
            if value.at[0] == 32 or value.at[value.size - 1] == 32:
                return NOT_HOT
            view.keys = value
        elif span_is(name, b"__BORNHOST", 10):
            view.born_host = value
        elif span_is(name, b"TRACE_CONTEXT", 13):
            view.trace_context = value
        else:
            return NOT_HOT
    return HOT if view.message_id.size else NOT_HOT


cdef uint8_t* put_keys(uint8_t* out, Span keys) noexcept nogil:
    cdef const uint8_t* at = keys.at
    cdef const uint8_t* end = keys.at + keys.size
    cdef const uint8_t* stop
    while at < end:
        stop = <const uint8_t*>memchr(at, 32, end - at)
        if stop == NULL:
            stop = end
        out = put_text(out, 0x12, at, stop - at)
        at = stop + 1
    return out


cdef uint8_t* put_user_properties(uint8_t* out, const uint8_t* properties, Py_ssize_t size,
                                  const NameFilter* reserved) noexcept nogil:
    cdef const uint8_t* at = properties
    cdef Span name, value
    while next_property(&at, properties + size, &name, &value):
        if name_may_be_in(reserved, name):
            continue
        out = put_number(out, 0x12, 2 + varint_size(name.size) + name.size + varint_size(value.size) + value.size)
        out = put_text(out, 0x0A, name.at, name.size)
        out = put_text(out, 0x12, value.at, value.size)
    return out


cdef class ReceiveWire:
    """Messages handed out, as ReceiveMessageResponse elements with their receipt handles.

    `prefix` and `secret` as for HandleSeal.
    """

    cdef HandleSeal seal
    cdef NameFilter reserved
    cdef uint8_t* scratch
    cdef Py_ssize_t scratch_room
    cdef char digests[FRAMES_AT_ONCE_MAX * MD5_HEX_BYTES]

    def __cinit__(self, bytes prefix not None, bytes secret not None, *, reserved_names, reserved_prefixes):
        self.seal = HandleSeal(prefix, secret)
        fill_name_filter(&self.reserved, reserved_names, reserved_prefixes)

    def __dealloc__(self):
        free(self.scratch)

    def frames(self, bytes topic not None, bytes context not None, int64_t invisible_ms, list delivered not None):
        """For each (StoredMessage, attempt, hand-out time in ms) its framed element, or None when it is not a plain one.

        `topic` is the encoded Resource as the client named it; `context` what the handles are bound to.
        """
        cdef Py_ssize_t n = len(delivered)
        cdef Py_ssize_t i
        cdef const uint8_t* bodies[FRAMES_AT_ONCE_MAX]
        cdef uint64_t sizes[FRAMES_AT_ONCE_MAX]
        cdef char* digests[FRAMES_AT_ONCE_MAX]
        cdef StoredMessage message
        cdef list result = [None] * n
        if n > FRAMES_AT_ONCE_MAX:
            raise ValueError(f"at most {FRAMES_AT_ONCE_MAX} messages at once, not {n}")
        if len(context) > CONTEXT_BYTES_MAX or invisible_ms < 0:
            return result
        for i in range(n):
            message = <StoredMessage?>delivered[i][0]
            bodies[i] = <const uint8_t*>PyBytes_AS_STRING(message.body)
            sizes[i] = PyBytes_GET_SIZE(message.body)
            digests[i] = self.digests + i * MD5_HEX_BYTES
        with nogil:
            md5_many(bodies, sizes, digests, <int>n)
        for i in range(n):
            message, attempt, pop_ms = delivered[i]
            result[i] = self.frame(message, digests[i], attempt, pop_ms, topic, context, invisible_ms)
        return result

    cdef object frame(self, StoredMessage message, const char* digest, int32_t attempt, int64_t pop_ms, bytes topic,
                      bytes context, int64_t invisible_ms):
        cdef StoredView view
        cdef const uint8_t* properties = <const uint8_t*>PyBytes_AS_STRING(message.raw_properties)
        cdef Py_ssize_t properties_len = PyBytes_GET_SIZE(message.raw_properties)
        cdef Py_ssize_t body_len = PyBytes_GET_SIZE(message.body)
        cdef Py_ssize_t topic_len = PyBytes_GET_SIZE(topic)
        cdef Py_ssize_t system_len, message_len
        cdef uint8_t* out
        if (message.sys_flag & ~(FLAG_BORN_V6 | FLAG_STORE_V6) or attempt < 1 or message.born_ms < 0 or pop_ms < 0
                or PyBytes_GET_SIZE(message.raw_store_host) != HOST_V4
                or walk_stored(properties, properties_len, &self.reserved, &view) != HOT
                or (view.born_host.size == 0 and PyBytes_GET_SIZE(message.raw_born_host) != HOST_V4)):
            return None
        self.make_room(SYSTEM_FIXED_BYTES + 2 * properties_len + 2 * HANDLE_BYTES_MAX)
        system_len = self.put_system(message, &view, digest, attempt, pop_ms, context, invisible_ms) - self.scratch
        message_len = (1 + varint_size(topic_len) + topic_len + view.user_bytes + 1 + varint_size(system_len) + system_len
                       + 1 + varint_size(body_len) + body_len)
        cdef Py_ssize_t element_len = 1 + varint_size(message_len) + message_len
        cdef bytes framed = PyBytes_FromStringAndSize(NULL, FRAME_HEAD_BYTES + element_len)
        out = <uint8_t*>PyBytes_AS_STRING(framed)
        out[0] = 0
        rz_put32(<char*>out + 1, <uint32_t>element_len)
        out = put_number(out + FRAME_HEAD_BYTES, 0x12, message_len)
        out = put_text(out, 0x0A, PyBytes_AS_STRING(topic), topic_len)
        out = put_user_properties(out, properties, properties_len, &self.reserved)
        out = put_text(out, 0x1A, self.scratch, system_len)
        put_text(out, 0x22, PyBytes_AS_STRING(message.body), body_len)
        return framed

    cdef uint8_t* put_system(self, StoredMessage message, const StoredView* view, const char* digest, int32_t attempt,
                             int64_t pop_ms, bytes context, int64_t invisible_ms) noexcept:
        """SystemProperties into the scratch buffer, in the order of field numbers."""
        cdef uint8_t* out = self.scratch
        cdef uint8_t host[24]
        cdef uint8_t handle[HANDLE_CHARS_MAX]
        cdef Py_ssize_t size
        if view.tag.size:
            out = put_text(out, 0x0A, view.tag.at, view.tag.size)
        out = put_keys(out, view.keys)
        out = put_text(out, 0x1A, view.message_id.at, view.message_id.size)
        out[0] = 0x22                   # body_digest
        out[1] = 2 + 2 + MD5_HEX_BYTES
        out = put_number(out + 2, 0x08, DIGEST_TYPE_MD5)
        out = put_text(out, 0x12, digest, MD5_HEX_BYTES)
        out = put_number(out, 0x28, BODY_ENCODING_IDENTITY)
        out = put_number(out, 0x30, MESSAGE_TYPE_NORMAL)
        out = put_time(out, 0x3A, message.born_ms)
        if view.born_host.size:
            out = put_text(out, 0x42, view.born_host.at, view.born_host.size)
        else:
            out = put_text(out, 0x42, host, put_ipv4_host(host, <const uint8_t*>PyBytes_AS_STRING(message.raw_born_host)))
        out = put_time(out, 0x4A, message.store_ms)
        out = put_text(out, 0x52, host, put_ipv4_host(host, <const uint8_t*>PyBytes_AS_STRING(message.raw_store_host)))
        size = self.seal.put(handle, message.queue_id, message.queue_offset, attempt, pop_ms, context)
        out = put_text(out, 0x62, handle, size)
        if message.queue_id:
            out = put_number(out, 0x68, message.queue_id)
        out = put_number(out, 0x70, message.queue_offset)
        out = put_time(out, 0x7A, invisible_ms)
        out[0] = 0x80                   # delivery_attempt, field 16: keys take two bytes from here on
        out = put_number(out + 1, 0x01, attempt)
        if view.trace_context.size:
            out[0] = 0x92               # field 18
            out = put_text(out + 1, 0x01, view.trace_context.at, view.trace_context.size)
        return out

    cdef int make_room(self, Py_ssize_t size) except -1:
        cdef uint8_t* scratch
        if size > self.scratch_room:
            scratch = <uint8_t*>realloc(self.scratch, size)
            if scratch == NULL:
                raise MemoryError
            self.scratch = scratch
            self.scratch_room = size
        return 0
