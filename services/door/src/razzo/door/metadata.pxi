# gRPC's ways with header values: timeouts, percent-encoded messages, base64 of ``-bin`` keys
# (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).

#: bytes of a percent-encoded grpc-message; a longer text is cut, so that it fits the header limit of every client (8 KiB)
GRPC_MESSAGE_BYTES_MAX = 4096

_KEY = re.compile(r"[0-9a-z_.\-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")

PADDING = (b"", b"", b"==", b"=")  # of base64, by what is left of its last four characters; one alone is an error

cdef int64_t TIMEOUT_NS_MAX = 366 * 86400 * <int64_t>1000000000  # a longer timeout is cut to this


cdef int64_t parse_timeout(const uint8_t *value, size_t size) noexcept:
    """Nanoseconds of a grpc-timeout ("100m", at most 8 digits and a unit), or -1 when it is malformed."""
    cdef int64_t number = 0
    cdef int64_t unit
    cdef size_t i
    if size < 2 or size > 9:
        return -1
    for i in range(size - 1):
        if value[i] < c'0' or value[i] > c'9':
            return -1
        number = number * 10 + (value[i] - c'0')
    if value[size - 1] == c'n':
        unit = 1
    elif value[size - 1] == c'u':
        unit = 1000
    elif value[size - 1] == c'm':
        unit = 1000000
    elif value[size - 1] == c'S':
        unit = 1000000000
    elif value[size - 1] == c'M':
        unit = 60 * <int64_t>1000000000
    elif value[size - 1] == c'H':
        unit = 3600 * <int64_t>1000000000
    else:
        return -1
    if number > TIMEOUT_NS_MAX // unit:
        return TIMEOUT_NS_MAX
    return number * unit


cdef bytes percent_encoded(str text):
    """The text as a grpc-message: UTF-8, every byte outside printable ASCII and every ``%`` as ``%XX``."""
    if not text:
        return b""
    cdef bytes raw = text.encode("utf-8", "replace")
    if len(raw) <= GRPC_MESSAGE_BYTES_MAX and b"%" not in raw and _TEXT.fullmatch(text) is not None:
        return raw
    cdef list parts = []
    cdef Py_ssize_t size = 0
    for byte in raw:
        part = b"%c" % byte if 0x20 <= byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte
        size += len(part)
        if size > GRPC_MESSAGE_BYTES_MAX:
            break
        parts.append(part)
    return b"".join(parts)


cdef list encoded_pairs(metadata):
    """Response metadata as header bytes. ValueError for a key or value HTTP/2 or gRPC does not allow."""
    cdef list pairs = []
    for key, value in metadata:
        if _KEY.fullmatch(key) is None or key.startswith("grpc-") or key in ("content-type", "te"):
            raise ValueError(f"{key!r} cannot be a metadata key")
        if key.endswith("-bin"):
            if not isinstance(value, bytes):
                raise ValueError(f"the value of {key} must be bytes")
            raw = base64.b64encode(value).rstrip(b"=")
        else:
            if not isinstance(value, str) or _TEXT.fullmatch(value) is None:
                raise ValueError(f"the value of {key} must be printable ASCII text")
            raw = value.encode("ascii")
        pairs.append((key.encode("ascii"), raw))
    return pairs


cdef list decoded_binary(bytes value):
    """The values of one ``-bin`` header: base64 with or without padding, several joined by commas."""
    cdef list values = []
    for part in value.split(b","):
        part = part.strip().rstrip(b"=")
        try:
            values.append(base64.b64decode(part + PADDING[len(part) % 4], validate=True))
        except ValueError:
            continue  # not base64: the peer broke the protocol, there is no value to give
    return values
