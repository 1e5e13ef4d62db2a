# Stored records as Python objects, and the filtered scan of a queue behind `Store.read` (section 3.8).

import socket

cdef str host_text(const char *p, int32_t length):
    family = socket.AF_INET if length == HOST_V4 else socket.AF_INET6
    address = socket.inet_ntop(family, PyBytes_FromStringAndSize(p, length - 4))
    port = <int32_t> rz_get32(p + length - 4)
    return f"[{address}]:{port}" if length == HOST_V6 else f"{address}:{port}"


cdef class StoredMessage:
    """One record read back. Times in ms since the epoch; offsets as in section 2.1; `size` the whole record in bytes."""

    cdef readonly str topic
    cdef readonly int queue_id
    cdef readonly int flag
    cdef readonly int sys_flag
    cdef readonly int reconsume_times
    cdef readonly int size
    cdef readonly unsigned int body_crc
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t born_ms
    cdef readonly int64_t store_ms
    cdef readonly int64_t prepared_offset
    cdef readonly bytes body
    cdef readonly bytes raw_properties
    cdef readonly bytes raw_born_host        # packed ip and port, 8 or 20 bytes
    cdef readonly bytes raw_store_host
    cdef dict decoded

    @property
    def properties(self):
        """dict[str, str], decoded on first use."""
        if self.decoded is None:
            self.decoded = decode_property_map(<const uint8_t *> PyBytes_AS_STRING(self.raw_properties),
                                               PyBytes_GET_SIZE(self.raw_properties))
        return self.decoded

    @property
    def born_host(self):
        """"ip:port"; IPv6 in brackets."""
        return host_text(PyBytes_AS_STRING(self.raw_born_host), <int32_t> len(self.raw_born_host))

    @property
    def store_host(self):
        return host_text(PyBytes_AS_STRING(self.raw_store_host), <int32_t> len(self.raw_store_host))

    @property
    def offset_message_id(self):
        """Store host and physical offset as upper-case hex (section 16.2)."""
        return (self.raw_store_host + self.physical_offset.to_bytes(8, "big")).hex().upper()

    @property
    def inner_count(self):
        """Messages of an inner batch (section 2.7), which this record keeps in its body; 0 for an ordinary one. Theirs are
        the queue offsets from queue_offset on."""
        cdef Marks marks
        if not self.sys_flag & FLAG_INNER_BATCH:
            return 0
        find_marks(<const uint8_t *> PyBytes_AS_STRING(self.raw_properties), PyBytes_GET_SIZE(self.raw_properties), &marks)
        return marks.inner_num

    def inner(self, int index, int flag, bytes body not None, bytes properties not None):
        """A message of this inner batch as a message of its own: the batch's place, hosts and times, its own offset."""
        cdef StoredMessage message = StoredMessage.__new__(StoredMessage)
        message.topic = self.topic
        message.queue_id = self.queue_id
        message.flag = flag
        message.sys_flag = self.sys_flag & ~(FLAG_INNER_BATCH | FLAG_NEED_UNWRAP)
        message.reconsume_times = self.reconsume_times
        message.size = <int> (len(body) + len(properties))
        message.body_crc = libdeflate_crc32(0, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)) & 0x7FFFFFFF
        message.queue_offset = self.queue_offset + index
        message.physical_offset = self.physical_offset
        message.born_ms = self.born_ms
        message.store_ms = self.store_ms
        message.prepared_offset = self.prepared_offset
        message.body = body
        message.raw_properties = properties
        message.raw_born_host = self.raw_born_host
        message.raw_store_host = self.raw_store_host
        return message

    def __repr__(self):
        return (f"StoredMessage({self.topic!r}, queue {self.queue_id}, offset {self.queue_offset}, "
                f"at {self.physical_offset}, {self.size} bytes)")


cdef StoredMessage decode_record(const char *p, const Shape *shape, str known_topic):
    cdef StoredMessage message = StoredMessage.__new__(StoredMessage)
    cdef int32_t born_len = shape.store_time - shape.born_host
    cdef int32_t store_len = HOST_V6 if rz_get32(p + 36) & FLAG_STORE_V6 else HOST_V4
    cdef Py_ssize_t n
    cdef const char *name
    if known_topic is not None:
        name = PyUnicode_AsUTF8AndSize(known_topic, &n)
        if n != shape.topic_len or memcmp(name, p + shape.topic, n) != 0:
            known_topic = None
    if known_topic is None:
        known_topic = (p + shape.topic)[:shape.topic_len].decode("utf-8", "replace")
    message.topic = known_topic
    message.size = shape.size
    message.body_crc = rz_get32(p + 8)
    message.queue_id = <int32_t> rz_get32(p + 12)
    message.flag = <int32_t> rz_get32(p + 16)
    message.queue_offset = <int64_t> rz_get64(p + 20)
    message.physical_offset = <int64_t> rz_get64(p + 28)
    message.sys_flag = <int32_t> rz_get32(p + 36)
    message.born_ms = <int64_t> rz_get64(p + 40)
    message.raw_born_host = PyBytes_FromStringAndSize(p + shape.born_host, born_len)
    message.store_ms = <int64_t> rz_get64(p + shape.store_time)
    message.raw_store_host = PyBytes_FromStringAndSize(p + shape.store_host, store_len)
    message.reconsume_times = <int32_t> rz_get32(p + shape.store_host + store_len)
    message.prepared_offset = <int64_t> rz_get64(p + shape.store_host + store_len + 4)
    message.body = PyBytes_FromStringAndSize(p + shape.body, shape.body_len)
    message.raw_properties = PyBytes_FromStringAndSize(p + shape.properties, shape.properties_len)
    return message


def decode_at(MappedFile mapped not None, int64_t file_start, int64_t position, str topic=None):
    """StoredMessage of the record at physical offset `position` of a mapped commit-log file; None when no whole, checksummed
    record that names this place begins there."""
    cdef Shape shape
    cdef int64_t at = position - file_start
    if (at < 0 or at >= mapped.size
            or verify_record(mapped.base + at, mapped.size - at, position, True, &shape) != RECORD_OK):
        return None
    return decode_record(mapped.base + at, &shape, topic)


cdef enum:
    TAGS_MAX = 256                  # tag hashes looked for by linear search; more go through the Python set


cdef bint wanted(int64_t tag_code, const int64_t *tags, int count, object many) except -1:
    cdef int i
    if many is not None:
        return tag_code in many
    for i in range(count):
        if tags[i] == tag_code:
            return True
    return False


def collect(MappedFile units not None, int32_t unit_bytes, int64_t first_unit, int64_t begin, int64_t end,
            int64_t max_count, int64_t max_bytes, int64_t bytes_so_far, object tag_hashes, list segments,
            int64_t log_start, int64_t file_bytes, str topic, list found):
    """Append matching messages of units [begin, end), all inside one mapped queue file, to `found`.

    `segments` are the mapped commit-log files from physical offset `log_start` on. Stops at max_count messages in `found`
    or before exceeding max_bytes (the very first message is always taken). Returns (next unit, bytes so far, removed,
    stopped): `removed` counts units whose record is gone or damaged, `stopped` is True when a bound ended the scan.
    """
    cdef int64_t unit = begin
    cdef const char *at
    cdef int64_t physical
    cdef int64_t index
    cdef int64_t removed = 0
    cdef int32_t size
    cdef int64_t tags[256]
    cdef int tag_count = 0
    cdef object many = None
    cdef bint filtered = tag_hashes is not None
    cdef MappedFile mapped
    cdef const char *p
    cdef Shape shape
    unit_in(units, begin - first_unit, end - begin, unit_bytes)
    if filtered:
        if len(tag_hashes) > TAGS_MAX:
            many = tag_hashes
        else:
            for tag in tag_hashes:
                tags[tag_count] = tag
                tag_count += 1
    while unit < end:
        at = units.base + (unit - first_unit) * unit_bytes
        physical = <int64_t> rz_get64(at)
        size = <int32_t> rz_get32(at + 8)
        if physical < log_start or size == FILLER_SIZE or size <= 0:
            removed += 1
            unit += 1
            continue
        if filtered and not wanted(<int64_t> rz_get64(at + 12), tags, tag_count, many):
            unit += 1
            continue
        if len(found) >= max_count or (found and bytes_so_far + size > max_bytes):
            return unit, bytes_so_far, removed, True
        index = (physical - log_start) // file_bytes
        if index >= len(segments):
            return unit, bytes_so_far, removed, True
        mapped = <MappedFile> segments[index]
        p = mapped.base + (physical - log_start - index * file_bytes)
        if (verify_record(p, mapped.size - (physical - log_start - index * file_bytes), physical, True, &shape) != RECORD_OK
                or shape.size != size):
            removed += 1
            unit += 1
            continue
        found.append(decode_record(p, &shape, topic))
        bytes_so_far += size
        unit += 1
    return unit, bytes_so_far, removed, False
