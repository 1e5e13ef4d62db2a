# The protobuf wire format, as much of it as the hot calls need
# (https://protobuf.dev/programming-guides/encoding/): reading without copies, writing into a growing buffer.
#
# Nothing here allocates for reading and nothing raises: a reader that meets bytes it does not like says so, and the caller
# hands the request to the slow path, whose answer (an error, mostly) is the authority.

cdef enum:
    WIRE_VARINT = 0
    WIRE_FIXED64 = 1
    WIRE_BYTES = 2
    WIRE_FIXED32 = 5


cdef struct Span:
    const uint8_t* at
    Py_ssize_t size


cdef struct WireReader:
    const uint8_t* at
    const uint8_t* end
    bint broken


cdef struct WireField:
    uint32_t number
    uint32_t kind
    uint64_t value      # of a varint
    Span span           # of bytes


cdef inline uint64_t wire_varint(WireReader* reader) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while reader.at < reader.end and shift < 70:
        byte = reader.at[0]
        reader.at += 1
        if shift < 64:
            value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    reader.broken = True
    return 0


cdef inline bint wire_next(WireReader* reader, WireField* field) noexcept nogil:
    """The next field; False at the end and on broken input (`reader.broken` tells them apart)."""
    cdef uint64_t key, size
    if reader.at >= reader.end or reader.broken:
        return False
    key = wire_varint(reader)
    field.number = <uint32_t>(key >> 3)
    field.kind = <uint32_t>(key & 7)
    if reader.broken or field.number == 0 or key >> 32:
        reader.broken = True
        return False
    if field.kind == WIRE_VARINT:
        field.value = wire_varint(reader)
        return not reader.broken
    if field.kind == WIRE_BYTES:
        size = wire_varint(reader)
        if reader.broken or size > <uint64_t>(reader.end - reader.at):
            reader.broken = True
            return False
        field.span.at = reader.at
        field.span.size = <Py_ssize_t>size
        reader.at += size
        return True
    if field.kind == WIRE_FIXED64 or field.kind == WIRE_FIXED32:
        size = 8 if field.kind == WIRE_FIXED64 else 4
        if size > <uint64_t>(reader.end - reader.at):
            reader.broken = True
            return False
        reader.at += size
        return True
    reader.broken = True        # groups: nothing in the contract has any
    return False


cdef inline WireReader wire_reader(Span span) noexcept nogil:
    cdef WireReader reader
    reader.at = span.at
    reader.end = span.at + span.size
    reader.broken = False
    return reader


# ---- text ----------------------------------------------------------------------------------------------------------

cdef enum:
    TEXT_PLAIN = 0          # UTF-8, no control characters, at least one visible ASCII character
    TEXT_UNSURE = 1         # anything else, the empty string too: the slow path decides

cdef inline int text_class(Span text) noexcept nogil:
    """Whether a string is plainly acceptable as tag, key or property: valid UTF-8 without control characters and not blank."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef uint8_t byte
    cdef int more
    cdef bint visible = False
    while at < end:
        byte = at[0]
        at += 1
        if byte < 0x80:
            if byte < 0x20 or byte == 0x7F:
                return TEXT_UNSURE
            if byte != 0x20:
                visible = True
            continue
        # Only the sequences that can neither be overlong, nor a surrogate, nor a C1 control pass; the few others are
        # left to the slow path.
        if 0xC3 <= byte <= 0xDF:
            more = 1
        elif 0xE1 <= byte <= 0xEC or byte == 0xEE or byte == 0xEF:
            more = 2
        elif 0xF1 <= byte <= 0xF3:
            more = 3
        else:
            return TEXT_UNSURE
        if end - at < more:
            return TEXT_UNSURE
        while more:
            if at[0] & 0xC0 != 0x80:
                return TEXT_UNSURE
            at += 1
            more -= 1
    return TEXT_PLAIN if visible else TEXT_UNSURE


# ---- sets of names ---------------------------------------------------------------------------------------------------

cdef struct NameFilter:
    # Bit (length & 63) of row (first byte) is set when some name of the set has this length and first byte. No bit, no
    # member; a bit means only that somebody has to look closer.
    uint64_t rows[256]


cdef inline bint name_may_be_in(const NameFilter* names, Span name) noexcept nogil:
    return (names.rows[name.at[0]] >> (name.size & 63)) & 1


cdef int fill_name_filter(NameFilter* names, members, prefixes) except -1:
    """`prefixes` stand for every name that begins with one of them."""
    memset(names, 0, sizeof(NameFilter))
    for member in members:
        encoded = member.encode()
        names.rows[encoded[0]] |= <uint64_t>1 << (len(encoded) & 63)
    for prefix in prefixes:
        names.rows[prefix.encode()[0]] = ~<uint64_t>0
    return 0


# ---- writing ---------------------------------------------------------------------------------------------------------

cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t>(value | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline uint8_t* put_text(uint8_t* out, uint8_t key, const void* data, Py_ssize_t size) noexcept nogil:
    """A bytes field with a one-byte key."""
    out[0] = key
    out = put_varint(out + 1, <uint64_t>size)
    memcpy(out, data, size)
    return out + size


cdef inline uint8_t* put_number(uint8_t* out, uint8_t key, uint64_t value) noexcept nogil:
    """A varint field with a one-byte key."""
    out[0] = key
    return put_varint(out + 1, value)
