# Recovery: verified records of the log entered into queues and index, as append would have done.

def dispatch(LogWriter writer not None, MappedFile mapped not None, int64_t file_start, int64_t position, int64_t end,
             int64_t index_from):
    """Enter the verified records of [position, end) into queues and, from index_from on, into the index.

    Returns (code, position reached): DONE at `end` or at the end-of-file marker; a NEED_ code when something has to be
    provided before the record at that position (NEED_START: `needed` = (Queue, queue offset) a queue must begin at or skip
    to). Records a queue already holds are skipped, so the same span may be dispatched again.
    """
    cdef int code
    cdef int64_t at = position
    with nogil:
        code = dispatch_span(writer, mapped.base, file_start, &at, end, index_from)
    if code == NEED_QUEUE_:
        writer.needed = record_topic(mapped, at - file_start)
    elif code == NEED_UNITS_:
        writer.needed = <Queue> writer.needed_queue.owner
    elif code == NEED_START_:
        writer.needed = (<Queue> writer.needed_queue.owner, writer.need_end)
    elif code == NEED_INDEX_:
        writer.needed = writer.need_end
    return code, at


cdef int dispatch_span(LogWriter writer, char *base, int64_t file_start, int64_t *position, int64_t end,
                       int64_t index_from) noexcept nogil:
    cdef Shape shape
    cdef Marks marks
    cdef TopicState *topic = NULL
    cdef const char *p
    cdef const uint8_t *name
    cdef int64_t at = position[0]
    cdef int64_t store_ms
    cdef int32_t queue_id
    cdef int32_t kind
    cdef int code = DONE_
    while at < end:
        p = base + (at - file_start)
        if shape_of(p, end - at, &shape) != RECORD_OK:
            break
        name = <const uint8_t *> p + shape.topic
        if topic == NULL or topic.name_len != shape.topic_len or memcmp(topic.name, name, shape.topic_len) != 0:
            topic = writer.topics.find(name, shape.topic_len, java_hash(0, name, shape.topic_len))
        queue_id = <int32_t> rz_get32(p + 12)
        kind = rz_get32(p + 36) & (FLAG_TRANSACTION | FLAG_INNER_BATCH)
        store_ms = <int64_t> rz_get64(p + shape.store_time)
        find_marks(<const uint8_t *> p + shape.properties, shape.properties_len, &marks)
        # A file name cannot hold an impossible topic or queue id; such a record stays readable by its offset only.
        if (0 <= queue_id <= QUEUE_ID_MAX and 0 < shape.topic_len <= TOPIC_BYTES
                and (topic == NULL or at >= topic.deleted_below)):
            if topic == NULL or queue_id >= topic.queue_room or topic.queues[queue_id] == NULL:
                code = NEED_QUEUE_
                break
            code = dispatch_unit(writer, topic, topic.queues[queue_id], p, &shape, &marks, kind, at, store_ms)
            if code != DONE_:
                break
            if writer.index_enabled and at >= index_from and (kind & FLAG_TRANSACTION) != FLAG_ROLLBACK:
                writer.need_end = count_keys(&marks)
                if writer.need_end:
                    if writer.indexes.count == 0 or writer.need_end > writer.indexes.free_entries():
                        code = NEED_INDEX_
                        break
                    if at >= writer.indexes.items[writer.indexes.count - 1].end_physical:
                        writer.indexes.put_keys(topic, &marks, at, store_ms)
                        writer.dispatched_keys += 1
        at += shape.size
    writer.indexes.put_headers()
    position[0] = at
    return code


cdef int dispatch_unit(LogWriter writer, TopicState *topic, QueueState *queue, const char *p, const Shape *shape,
                       const Marks *marks, int32_t kind, int64_t at, int64_t store_ms) noexcept nogil:
    """The unit of one record, when it gets one and its queue does not have it yet. DONE, NEED_START or NEED_UNITS."""
    cdef int64_t queue_offset = <int64_t> rz_get64(p + 20)
    cdef int64_t tag_code
    cdef bint batch = (kind & FLAG_INNER_BATCH) != 0
    if (kind & FLAG_TRANSACTION) not in (0, 0x8) or at + shape.size <= queue.end_physical or batch != queue.batched:
        return DONE_
    if batch:
        # As Apache does, the properties are believed, not the record's own queue offset.
        queue_offset = marks.inner_base
        if marks.inner_num <= 0 or marks.inner_num > INNER_MESSAGES_MAX or queue_offset < 0:
            return DONE_
    if queue_offset < queue.next_offset:
        return DONE_
    if queue_offset > queue.next_offset:
        writer.needed_queue = queue
        writer.need_end = queue_offset
        return NEED_START_
    if queue.file_count == 0 or queue.next >= queue.files[queue.file_count - 1].reserved_end:
        queue.planned = queue.next + 1
        writer.needed_queue = queue
        return NEED_UNITS_
    tag_code = writer.tag_code(topic, marks, store_ms)
    if batch:
        put_batch_unit(unit_at(queue, queue.next), at, shape.size, tag_code, store_ms, queue_offset, marks.inner_num)
        queue.next_offset = queue_offset + marks.inner_num
    else:
        put_unit(unit_at(queue, queue.next), at, shape.size, tag_code)
        queue.next_offset = queue_offset + 1
    queue.next += 1
    queue.end_physical = at + shape.size
    writer.dispatched_units += 1
    return DONE_
