# Hashes and ids for Python callers.


def siphash24(bytes key not None, data not None):
    """SipHash-2-4 of any bytes-like `data` under a 16-byte key, as an unsigned 64-bit int."""
    cdef const uint8_t[::1] view
    if len(key) != 16:
        raise ValueError(f"a SipHash key has 16 bytes, not {len(key)}")
    if len(data) == 0:
        return sip24(<const uint8_t *> PyBytes_AS_STRING(key), NULL, 0)
    view = data
    return sip24(<const uint8_t *> PyBytes_AS_STRING(key), &view[0], view.shape[0])


def tag_hash(str text not None):
    """Java's String.hashCode: signed 32-bit, over UTF-16 units."""
    cdef Py_ssize_t n
    cdef const char *encoded = PyUnicode_AsUTF8AndSize(text, &n)
    return <int32_t> java_hash(0, <const uint8_t *> encoded, n)


def index_key_hash(str topic not None, str key not None):
    """Hash of an index key: abs of the Java hash of "topic#key", with abs(-2^31) counted as 0."""
    return key_hash(<uint32_t> <int32_t> tag_hash(f"{topic}#{key}"))


def crc32(data not None):
    """CRC-32 (zip polynomial), unsigned 32 bit."""
    cdef const uint8_t[::1] view = data
    return libdeflate_crc32(0, &view[0], view.shape[0]) if view.shape[0] else 0
