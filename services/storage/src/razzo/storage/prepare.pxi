# NewMessage tuples to Prepared: everything about a message that does not depend on where it lands.

class TooLarge(ValueError):
    """A message breaks a size limit; the store re-raises it as MessageTooLarge."""


cdef class RecordRules:
    """What a record may be. Producers other than `load` fill an item themselves and call `prepare`."""

    cdef int64_t file_bytes
    cdef int64_t body_max
    cdef int64_t properties_max
    cdef int32_t store_host_len
    cdef bint crc_property

    def __cinit__(self, int64_t file_bytes, int64_t body_max, int64_t properties_max, int32_t store_host_len,
                  bint crc_property):
        self.file_bytes = file_bytes
        self.body_max = body_max
        self.properties_max = properties_max
        self.store_host_len = store_host_len
        self.crc_property = crc_property

    cdef int load(self, object message, Prepared *item, Py_ssize_t index) except -1:
        """Read one NewMessage by position; pointers stay valid while the batch is held."""
        cdef Py_ssize_t n
        cdef PyObject *field
        if not PyTuple_Check(message) or PyTuple_GET_SIZE(message) != 10:
            raise TypeError(f"message {index} of the batch is not a NewMessage")
        topic = <object> PyTuple_GET_ITEM(message, 0)
        body = <object> PyTuple_GET_ITEM(message, 2)
        properties = <object> PyTuple_GET_ITEM(message, 3)
        host = <object> PyTuple_GET_ITEM(message, 7)
        if not (PyBytes_CheckExact(body) and PyBytes_CheckExact(properties) and PyBytes_CheckExact(host)):
            raise TypeError(f"message {index} of the batch: body, properties and born_host are bytes")
        item.topic = <const uint8_t *> PyUnicode_AsUTF8AndSize(topic, &n)
        if not 0 < n <= TOPIC_BYTES:
            raise TooLarge(f"message {index} of the batch: topic has {n} bytes, allowed are 1 to {TOPIC_BYTES}")
        item.topic_len = <int32_t> n
        n = PyBytes_GET_SIZE(body)
        if n > self.body_max:
            raise TooLarge(f"message {index} of the batch: body has {n} bytes, allowed are {self.body_max}")
        item.body = <const uint8_t *> PyBytes_AS_STRING(body)
        item.body_len = <int32_t> n
        n = PyBytes_GET_SIZE(properties)
        if n > self.properties_max:
            raise TooLarge(f"message {index} of the batch: properties have {n} bytes, allowed are {self.properties_max}")
        item.properties = <const uint8_t *> PyBytes_AS_STRING(properties)
        item.properties_len = <int32_t> n
        n = PyBytes_GET_SIZE(host)
        if n != 0 and n != HOST_V4 and n != HOST_V6:
            raise ValueError(f"message {index} of the batch: a packed host has 0, 8 or 20 bytes, not {n}")
        item.born_host = <const uint8_t *> PyBytes_AS_STRING(host)
        item.born_host_len = <int32_t> n
        item.queue_id = <object> PyTuple_GET_ITEM(message, 1)
        if not 0 <= item.queue_id <= QUEUE_ID_MAX:
            raise ValueError(f"message {index} of the batch: queue id {item.queue_id} is not between 0 and {QUEUE_ID_MAX}")
        item.sys_flag = <object> PyTuple_GET_ITEM(message, 4)
        item.flag = <object> PyTuple_GET_ITEM(message, 5)
        item.born_ms = <object> PyTuple_GET_ITEM(message, 6)
        item.reconsume_times = <object> PyTuple_GET_ITEM(message, 8)
        item.prepared_offset = <object> PyTuple_GET_ITEM(message, 9)
        return self.prepare(item, index)

    cdef int prepare(self, Prepared *item, Py_ssize_t index) except -1:
        """Fills the second part of Prepared. TooLarge, ValueError."""
        cdef int64_t size
        cdef bint terminated = item.properties_len == 0 or item.properties[item.properties_len - 1] == 2
        find_marks(item.properties, item.properties_len, &item.marks)
        item.stored_properties_len = item.properties_len
        item.inner_count = 0
        item.separated = False
        if item.sys_flag & FLAG_INNER_BATCH or item.marks.inner_num:
            self.prepare_inner_batch(item, index)
        if (self.crc_property or item.inner_count) and not terminated:
            item.separated = True
            item.stored_properties_len += 1
        if self.crc_property:
            item.stored_properties_len += CRC_PROPERTY_BYTES
        if item.stored_properties_len > 32767:
            raise TooLarge(f"message {index} of the batch: properties leave no room for the store's own")
        if item.properties_len and item.properties[item.properties_len - 1] == 0:
            raise ValueError(f"message {index} of the batch: properties end in a zero byte, which recovery takes for a torn "
                             "record")
        if not names_folder(item.topic, item.topic_len):
            raise ValueError(f"message {index} of the batch: the topic cannot be a folder name, so it cannot be a topic")
        size = (FIXED_BYTES + (HOST_V6 if item.born_host_len == HOST_V6 else HOST_V4) + self.store_host_len
                + item.body_len + item.topic_len + item.stored_properties_len)
        if item.topic_len > TOPIC_V1_BYTES:
            size += 1
        if size + BLANK_BYTES > self.file_bytes:
            raise TooLarge(f"message {index} of the batch: record of {size} bytes does not fit a commit-log file "
                           f"of {self.file_bytes}")
        item.size = <int32_t> size
        item.has_unit = (item.sys_flag & FLAG_TRANSACTION) in (0, 0x8)
        return 0

    cdef int prepare_inner_batch(self, Prepared *item, Py_ssize_t index) except -1:
        """Section 2.7: several messages in one record, which say how many they are; the store adds where they begin."""
        if not item.sys_flag & FLAG_INNER_BATCH:
            raise ValueError(f"message {index} of the batch: INNER_NUM without the inner batch flag")
        if item.marks.inner_num <= 0 or item.marks.inner_num > INNER_MESSAGES_MAX:
            raise ValueError(f"message {index} of the batch: an inner batch needs INNER_NUM, 1 to {INNER_MESSAGES_MAX}")
        if item.marks.inner_base >= 0:
            raise ValueError(f"message {index} of the batch: INNER_BASE is given by the store")
        if item.sys_flag & FLAG_TRANSACTION:
            raise ValueError(f"message {index} of the batch: an inner batch has no part in transactions")
        item.inner_count = item.marks.inner_num
        item.base_digits = BASE_DIGITS_MAX
        item.stored_properties_len += BASE_PROPERTY_BYTES + BASE_DIGITS_MAX
        return 0
