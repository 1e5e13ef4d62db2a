# Receipt handles, made and opened (layout: `razzo.broker.handles`, which is the slow way and the authority).

cdef enum:
    RECEIPT_PAYLOAD_BYTES = 24      # queue id u32, queue offset u64, attempt u32, hand-out time u64
    MAC_BYTES = 8
    SECRET_BYTES = 16
    HANDLE_BYTES_MAX = 512          # before base64
    CONTEXT_BYTES_MAX = 1024
    HANDLE_CHARS_MAX = 2 * HANDLE_BYTES_MAX

cdef const char* BASE64_URL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef Py_ssize_t put_base64_url(uint8_t* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """RFC 4648 section 5, without padding; returns the characters written."""
    cdef uint8_t* at = out
    cdef Py_ssize_t i = 0
    cdef uint32_t three
    while i + 3 <= size:
        three = <uint32_t>data[i] << 16 | <uint32_t>data[i + 1] << 8 | data[i + 2]
        at[0] = BASE64_URL[three >> 18]
        at[1] = BASE64_URL[(three >> 12) & 63]
        at[2] = BASE64_URL[(three >> 6) & 63]
        at[3] = BASE64_URL[three & 63]
        at += 4
        i += 3
    if size - i == 1:
        at[0] = BASE64_URL[data[i] >> 2]
        at[1] = BASE64_URL[(data[i] & 3) << 4]
        at += 2
    elif size - i == 2:
        at[0] = BASE64_URL[data[i] >> 2]
        at[1] = BASE64_URL[(data[i] & 3) << 4 | data[i + 1] >> 4]
        at[2] = BASE64_URL[(data[i + 1] & 15) << 2]
        at += 3
    return at - out


cdef inline int base64_value(uint8_t c) noexcept nogil:
    if 65 <= c <= 90:
        return c - 65
    if 97 <= c <= 122:
        return c - 71
    if 48 <= c <= 57:
        return c + 4
    return 62 if c == c"-" else 63 if c == c"_" else -1


cdef Py_ssize_t read_base64_url(uint8_t* out, Span text) noexcept nogil:
    """Bytes written (three for each four characters), or -1 when it is not canonical base64url without padding."""
    cdef uint32_t bits = 0
    cdef int held = 0
    cdef int value
    cdef Py_ssize_t i
    cdef uint8_t* at = out
    if text.size % 4 == 1:
        return -1
    for i in range(text.size):
        value = base64_value(text.at[i])
        if value < 0:
            return -1
        bits = (bits << 6) | <uint32_t>value
        held += 6
        if held >= 8:
            held -= 8
            at[0] = <uint8_t>(bits >> held)
            at += 1
            bits &= (1U << held) - 1
    return at - out if bits == 0 else -1


cdef class HandleSeal:
    """`prefix` is the head of every handle of this broker, `secret` (16 bytes) the key of their macs."""

    cdef bytes prefix
    cdef bytes secret

    def __cinit__(self, bytes prefix not None, bytes secret not None):
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the secret has {SECRET_BYTES} bytes, not {len(secret)}")
        if len(prefix) + RECEIPT_PAYLOAD_BYTES + MAC_BYTES > HANDLE_BYTES_MAX:
            raise ValueError(f"a handle's prefix of {len(prefix)} bytes is too long")
        self.prefix = prefix
        self.secret = secret

    cdef uint64_t mac(self, uint8_t* raw, Py_ssize_t signed, const uint8_t* context, Py_ssize_t context_len) noexcept:
        """Over `signed` bytes of a handle and its context, which is put behind them: `raw` has room for both."""
        memcpy(raw + signed, context, context_len)
        return sip24(<const uint8_t*>PyBytes_AS_STRING(self.secret), raw, signed + context_len)

    cdef Py_ssize_t put(self, uint8_t* out, uint32_t queue_id, uint64_t queue_offset, uint32_t attempt, uint64_t pop_ms,
                        bytes context) noexcept:
        """Writes a handle as text; its length, at most HANDLE_CHARS_MAX. `context` has at most CONTEXT_BYTES_MAX bytes."""
        cdef uint8_t raw[HANDLE_BYTES_MAX + CONTEXT_BYTES_MAX]
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.prefix)
        memcpy(raw, PyBytes_AS_STRING(self.prefix), size)
        rz_put32(<char*>raw + size, queue_id)
        rz_put64(<char*>raw + size + 4, queue_offset)
        rz_put32(<char*>raw + size + 12, attempt)
        rz_put64(<char*>raw + size + 16, pop_ms)
        size += RECEIPT_PAYLOAD_BYTES
        rz_put64(<char*>raw + size,
                 self.mac(raw, size, <const uint8_t*>PyBytes_AS_STRING(context), PyBytes_GET_SIZE(context)))
        return put_base64_url(out, raw, size + MAC_BYTES)

    cdef object open(self, Span handle, const uint8_t* context, Py_ssize_t context_len):
        """(queue id, queue offset, attempt, hand-out time in ms), or None when it is not this broker's for this context."""
        cdef uint8_t raw[HANDLE_BYTES_MAX + CONTEXT_BYTES_MAX]
        cdef Py_ssize_t prefix_len = PyBytes_GET_SIZE(self.prefix)
        cdef Py_ssize_t signed = prefix_len + RECEIPT_PAYLOAD_BYTES
        cdef const char* at
        cdef uint64_t mac
        if (handle.size > HANDLE_BYTES_MAX or read_base64_url(raw, handle) != signed + MAC_BYTES
                or memcmp(raw, PyBytes_AS_STRING(self.prefix), prefix_len) != 0):
            return None
        mac = rz_get64(<char*>raw + signed)
        if mac != self.mac(raw, signed, context, context_len):
            return None
        at = <char*>raw + prefix_len
        return rz_get32(at), rz_get64(at + 4), rz_get32(at + 12), rz_get64(at + 16)
