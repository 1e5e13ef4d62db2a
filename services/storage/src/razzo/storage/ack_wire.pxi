# AckMessageRequest (apache.rocketmq.v2) to the deliveries it names, and its answer when all of them are done.

cdef enum:
    ACK_GROUP = 1
    ACK_TOPIC = 2
    ACK_ENTRIES = 3
    ACK_ENTRY_MESSAGE_ID = 1
    ACK_ENTRY_HANDLE = 2


cdef int walk_ack_entry(Span span, Span* message_id, Span* handle) noexcept nogil:
    cdef WireReader reader = wire_reader(span)
    cdef WireField field
    message_id.size = handle.size = 0
    while wire_next(&reader, &field):
        if field.kind != WIRE_BYTES:
            return NOT_HOT
        if field.number == ACK_ENTRY_MESSAGE_ID:
            message_id[0] = field.span
        elif field.number == ACK_ENTRY_HANDLE:
            handle[0] = field.span
        else:
            return NOT_HOT          # a lite topic
    if reader.broken or handle.size == 0 or (message_id.size and text_class(message_id[0]) != TEXT_PLAIN):
        return NOT_HOT
    return HOT


cdef class AckWire:
    """Acknowledgements of this broker's own receipt handles, for groups and topics of the default namespace.

    `prefix` and `secret` as for HandleSeal; `entries_max` entries at most are taken in one request.
    """

    cdef HandleSeal seal
    cdef int entries_max

    def __cinit__(self, bytes prefix not None, bytes secret not None, *, int entries_max):
        self.seal = HandleSeal(prefix, secret)
        self.entries_max = entries_max

    def read(self, bytes request not None):
        """(consumer group, topic, [(queue id, queue offset, attempt, hand-out time in ms), …]), or None when anything about
        the request is not plain, a handle that is not valid for this group and topic included."""
        cdef Span span, group, topic, message_id, handle
        cdef WireReader reader
        cdef WireField field
        cdef uint8_t context[CONTEXT_BYTES_MAX]
        cdef Py_ssize_t context_len
        cdef list receipts = []
        cdef int seen = 0
        span.at = <const uint8_t*>PyBytes_AS_STRING(request)
        span.size = PyBytes_GET_SIZE(request)
        reader = wire_reader(span)
        while wire_next(&reader, &field):
            if field.kind != WIRE_BYTES or field.number > ACK_ENTRIES:
                return None
            if field.number == ACK_ENTRIES:
                continue
            if (seen >> field.number) & 1 or walk_name(field.span, &group if field.number == ACK_GROUP else &topic) != HOT:
                return None
            seen |= 1 << field.number
        if reader.broken or seen != (1 << ACK_GROUP | 1 << ACK_TOPIC) or group.size + topic.size + 1 > CONTEXT_BYTES_MAX:
            return None
        memcpy(context, group.at, group.size)
        context[group.size] = 0
        memcpy(context + group.size + 1, topic.at, topic.size)
        context_len = group.size + 1 + topic.size
        reader = wire_reader(span)
        while wire_next(&reader, &field):
            if field.number != ACK_ENTRIES:
                continue
            if len(receipts) == self.entries_max or walk_ack_entry(field.span, &message_id, &handle) != HOT:
                return None
            receipt = self.seal.open(handle, context, context_len)
            if receipt is None:
                return None
            receipts.append(receipt)
        if not receipts:
            return None
        return (<const char*>group.at)[:group.size].decode(), (<const char*>topic.at)[:topic.size].decode(), receipts

    def answer(self, bytes request not None):
        """AckMessageResponse with OK for every entry of a request that `read` took."""
        cdef Span span, message_id, handle
        cdef WireReader reader
        cdef WireField field
        cdef Py_ssize_t total = 2 + STATUS_OK_BYTES
        cdef Py_ssize_t entry
        cdef bytes answer
        cdef uint8_t* out = NULL
        cdef int writing
        span.at = <const uint8_t*>PyBytes_AS_STRING(request)
        span.size = PyBytes_GET_SIZE(request)
        for writing in range(2):
            if writing:
                answer = PyBytes_FromStringAndSize(NULL, total)
                out = put_text(<uint8_t*>PyBytes_AS_STRING(answer), 0x0A, STATUS_OK, STATUS_OK_BYTES)
            reader = wire_reader(span)
            while wire_next(&reader, &field):
                if field.number != ACK_ENTRIES or field.kind != WIRE_BYTES:
                    continue
                if walk_ack_entry(field.span, &message_id, &handle) != HOT:
                    raise ValueError("not a request that was read before")
                entry = 1 + varint_size(handle.size) + handle.size + 2 + STATUS_OK_BYTES
                if message_id.size:
                    entry += 1 + varint_size(message_id.size) + message_id.size
                if not writing:
                    total += 1 + varint_size(entry) + entry
                    continue
                out = put_number(out, 0x12, entry)
                if message_id.size:
                    out = put_text(out, 0x0A, message_id.at, message_id.size)
                out = put_text(out, 0x12, handle.at, handle.size)
                out = put_text(out, 0x1A, STATUS_OK, STATUS_OK_BYTES)
        return answer
