# SendMessageRequest (apache.rocketmq.v2) to a record, for the message that nearly every request carries: one NORMAL
# message of the default namespace with plain text in its fields. Everything else is `NOT_HOT`, and the caller's slow path
# answers it; so this walk never has to know an error code, and each doubt costs only time.

cdef enum:
    HOT = 0
    NOT_HOT = 1

    # Message
    MESSAGE_TOPIC = 1
    MESSAGE_USER_PROPERTIES = 2
    MESSAGE_SYSTEM_PROPERTIES = 3
    MESSAGE_BODY = 4
    # Resource
    RESOURCE_NAMESPACE = 1
    RESOURCE_NAME = 2
    # SystemProperties
    SYSTEM_TAG = 1
    SYSTEM_KEYS = 2
    SYSTEM_MESSAGE_ID = 3
    SYSTEM_BODY_DIGEST = 4
    SYSTEM_BODY_ENCODING = 5
    SYSTEM_MESSAGE_TYPE = 6
    SYSTEM_BORN_TIMESTAMP = 7
    SYSTEM_BORN_HOST = 8
    SYSTEM_STORE_TIMESTAMP = 9
    SYSTEM_STORE_HOST = 10
    SYSTEM_RECEIPT_HANDLE = 12
    SYSTEM_QUEUE_ID = 13
    SYSTEM_QUEUE_OFFSET = 14
    SYSTEM_INVISIBLE_DURATION = 15
    SYSTEM_DELIVERY_ATTEMPT = 16
    SYSTEM_TRACE_CONTEXT = 18
    MESSAGE_TYPE_NORMAL = 1
    BODY_ENCODING_IDENTITY = 1

    # More user properties than this are the slow path's, so that the search for a repeated key stays short.
    HOT_PROPERTIES_MAX = 16


cdef struct SendView:
    TopicState* target      # filled by SendWire: the topic as the writer keeps it
    Span message            # the Message, walked again for its properties when they are written
    Span system             # its SystemProperties, walked again for its keys
    Span topic
    Span body
    Span tag
    Span message_id
    Span born_host
    Span trace_context
    int64_t born_ms         # -1 when absent
    int property_count
    int key_count
    Py_ssize_t text_bytes   # user properties, tag and keys: what the limit counts
    Py_ssize_t key_bytes    # keys alone


cdef struct SendLimits:
    Py_ssize_t body_bytes_max
    Py_ssize_t text_bytes_max
    Py_ssize_t id_bytes_max         # of message id and born host
    Py_ssize_t trace_bytes_max
    NameFilter reserved


cdef inline bint text_has(Span text, uint8_t byte) noexcept nogil:
    return text.size > 0 and memchr(text.at, byte, text.size) != NULL


cdef int walk_name(Span span, Span* name) noexcept nogil:
    """The name of a Resource without a namespace."""
    cdef WireReader reader = wire_reader(span)
    cdef WireField field
    name.size = 0
    while wire_next(&reader, &field):
        if field.number != RESOURCE_NAME or field.kind != WIRE_BYTES:
            return NOT_HOT
        name[0] = field.span
    return NOT_HOT if reader.broken or name.size == 0 or text_class(name[0]) != TEXT_PLAIN else HOT


cdef int walk_timestamp_ms(Span span, int64_t* out) noexcept nogil:
    cdef WireReader reader = wire_reader(span)
    cdef WireField field
    cdef int64_t seconds = 0, nanos = 0
    while wire_next(&reader, &field):
        if field.kind != WIRE_VARINT:
            continue
        if field.number == 1:
            seconds = <int64_t>field.value
        elif field.number == 2:
            nanos = <int64_t>field.value
    if reader.broken or seconds < 0 or seconds > 253402300799LL or nanos < 0 or nanos > 999999999:
        return NOT_HOT
    out[0] = seconds * 1000 + nanos // 1000000
    return HOT


cdef int walk_property(Span span, Span* key, Span* value) noexcept nogil:
    """One entry of the map of user properties."""
    cdef WireReader reader = wire_reader(span)
    cdef WireField field
    key.at = value.at = NULL
    key.size = value.size = 0
    while wire_next(&reader, &field):
        if field.kind != WIRE_BYTES:
            return NOT_HOT
        if field.number == 1:
            key[0] = field.span
        elif field.number == 2:
            value[0] = field.span
        else:
            return NOT_HOT
    return NOT_HOT if reader.broken else HOT


cdef int walk_system(SendView* view, const SendLimits* limits) noexcept nogil:
    cdef WireReader reader = wire_reader(view.system)
    cdef WireField field
    cdef uint64_t kind = 0
    cdef uint64_t encoding = BODY_ENCODING_IDENTITY
    cdef uint32_t number
    while wire_next(&reader, &field):
        number = field.number
        if field.kind == WIRE_BYTES:
            if number == SYSTEM_TAG:
                view.tag = field.span
                if text_class(field.span) != TEXT_PLAIN or text_has(field.span, c"|"):
                    return NOT_HOT
            elif number == SYSTEM_KEYS:
                if text_class(field.span) != TEXT_PLAIN:
                    return NOT_HOT
                view.key_count += 1
                view.key_bytes += field.span.size
            elif number == SYSTEM_MESSAGE_ID:
                view.message_id = field.span
            elif number == SYSTEM_BORN_TIMESTAMP:
                if walk_timestamp_ms(field.span, &view.born_ms) != HOT:
                    return NOT_HOT
            elif number == SYSTEM_BORN_HOST:
                view.born_host = field.span
            elif number == SYSTEM_TRACE_CONTEXT:
                view.trace_context = field.span
            elif number == SYSTEM_BODY_DIGEST or number == SYSTEM_STORE_HOST or number == SYSTEM_STORE_TIMESTAMP:
                pass        # the server's own fields: ignored on a send
            else:
                return NOT_HOT
        elif field.kind == WIRE_VARINT:
            if number == SYSTEM_MESSAGE_TYPE:
                kind = field.value
            elif number == SYSTEM_BODY_ENCODING:
                encoding = field.value
            elif number != SYSTEM_QUEUE_ID and number != SYSTEM_DELIVERY_ATTEMPT and number != SYSTEM_QUEUE_OFFSET:
                return NOT_HOT
        else:
            return NOT_HOT
    if reader.broken or kind != MESSAGE_TYPE_NORMAL or encoding != BODY_ENCODING_IDENTITY:
        return NOT_HOT
    if view.message_id.size > limits.id_bytes_max or text_class(view.message_id) != TEXT_PLAIN:
        return NOT_HOT
    if view.born_host.size > limits.id_bytes_max or (view.born_host.size and text_class(view.born_host) != TEXT_PLAIN):
        return NOT_HOT
    if (view.trace_context.size > limits.trace_bytes_max
            or (view.trace_context.size and text_class(view.trace_context) != TEXT_PLAIN)):
        return NOT_HOT
    view.text_bytes += view.tag.size + view.key_bytes
    return HOT


cdef int walk_send(const uint8_t* data, Py_ssize_t size, const SendLimits* limits, SendView* view) noexcept nogil:
    """Fills `view` with spans into `data`. HOT only when the message is plainly valid, its topic aside."""
    cdef Span span, key, value
    cdef Span keys[HOT_PROPERTIES_MAX]
    cdef WireReader reader
    cdef WireField field
    cdef int seen = 0
    cdef int i
    memset(view, 0, sizeof(SendView))
    view.born_ms = -1
    span.at = data
    span.size = size
    reader = wire_reader(span)
    while wire_next(&reader, &field):
        if field.number != 1 or field.kind != WIRE_BYTES or seen:
            return NOT_HOT
        view.message = field.span
        seen = 1
    if reader.broken or not seen:
        return NOT_HOT

    seen = 0
    reader = wire_reader(view.message)
    while wire_next(&reader, &field):
        if field.kind != WIRE_BYTES:
            return NOT_HOT
        if field.number == MESSAGE_USER_PROPERTIES:
            if walk_property(field.span, &key, &value) != HOT:
                return NOT_HOT
            if text_class(key) != TEXT_PLAIN or text_class(value) != TEXT_PLAIN:
                return NOT_HOT
            if name_may_be_in(&limits.reserved, key):
                return NOT_HOT
            if view.property_count == HOT_PROPERTIES_MAX:
                return NOT_HOT
            for i in range(view.property_count):
                if keys[i].size == key.size and memcmp(keys[i].at, key.at, key.size) == 0:
                    return NOT_HOT      # of a repeated key the last one wins
            keys[view.property_count] = key
            view.property_count += 1
            view.text_bytes += key.size + value.size
            continue
        # A second topic, body or SystemProperties would be merged or win: rare enough for the slow path.
        if field.number > MESSAGE_BODY or (seen >> field.number) & 1:
            return NOT_HOT
        seen |= 1 << field.number
        if field.number == MESSAGE_TOPIC:
            view.topic = field.span
        elif field.number == MESSAGE_SYSTEM_PROPERTIES:
            view.system = field.span
        else:
            view.body = field.span
    if reader.broken or seen != (1 << MESSAGE_TOPIC | 1 << MESSAGE_SYSTEM_PROPERTIES | 1 << MESSAGE_BODY):
        return NOT_HOT

    span = view.topic
    if walk_name(span, &view.topic) != HOT:
        return NOT_HOT
    if walk_system(view, limits) != HOT:
        return NOT_HOT
    if view.body.size == 0 or view.body.size > limits.body_bytes_max:
        return NOT_HOT
    return HOT if view.text_bytes <= limits.text_bytes_max else NOT_HOT
