# Walking a mapped commit-log file: verification for recovery (Apache's checks of section 2.1 plus place), whole-record tails.

CHECK_NAMES = ("ok", "blank", "zero", "short", "magic", "crc", "sizes", "place", "torn", "topic")


def verify_span(MappedFile mapped not None, int64_t file_start, int64_t position, bint check_crc):
    """Verify records from physical offset `position` to the end of the file.

    Returns (reason, position, last store ms, records): reason is "end" (file exhausted without a marker), "blank" (the
    end-of-file marker), or why the bytes at `position` are no record: "zero", "short", "magic", "crc", "sizes", "place", "torn", "topic".
    """
    cdef Shape shape
    cdef RecordCheck found = RECORD_OK
    cdef int64_t at = position
    cdef int64_t end = file_start + mapped.size
    cdef int64_t last_ms = 0
    cdef int64_t records = 0
    with nogil:
        while end - at > 4:
            found = verify_record(mapped.base + (at - file_start), end - at, at, check_crc, &shape)
            if found != RECORD_OK:
                break
            last_ms = <int64_t> rz_get64(mapped.base + (at - file_start) + shape.store_time)
            at += shape.size
            records += 1
    return ("end" if found == RECORD_OK else CHECK_NAMES[found]), at, last_ms, records


def first_record(MappedFile mapped not None, int64_t file_start):
    """(stored physical offset, store ms) of the record at the start of a file, or None when there is none."""
    cdef Shape shape
    if shape_of(mapped.base, mapped.size, &shape) != RECORD_OK:
        return None
    return <int64_t> rz_get64(mapped.base + 28), <int64_t> rz_get64(mapped.base + shape.store_time)


def record_topic(MappedFile mapped not None, int64_t at):
    """(topic, queue id, whether it is an inner batch) of the record at byte `at` of a mapped file; ValueError when there is
    none."""
    cdef Shape shape
    if at < 0 or at >= mapped.size or shape_of(mapped.base + at, mapped.size - at, &shape) != RECORD_OK:
        raise ValueError(f"no record at byte {at}")
    topic = (mapped.base + at + shape.topic)[:shape.topic_len].decode("utf-8", "surrogateescape")
    return topic, <int32_t> rz_get32(mapped.base + at + 12), bool(rz_get32(mapped.base + at + 36) & FLAG_INNER_BATCH)


def store_time_at(MappedFile mapped not None, int64_t at):
    """Store time of the record at byte `at` of a mapped file, -1 when there is none."""
    cdef Shape shape
    if at < 0 or at >= mapped.size or shape_of(mapped.base + at, mapped.size - at, &shape) != RECORD_OK:
        return -1
    return <int64_t> rz_get64(mapped.base + at + shape.store_time)


def next_sound(MappedFile mapped not None, int64_t file_start, int64_t position, int64_t end):
    """Physical offset of the first whole, checksummed record that begins in [position, end) and names its own place; -1
    without.

    Finds the way on behind damage. Chance does not pass: magic, place, sizes and checksum all have to fit.
    """
    cdef Shape shape
    cdef int64_t at = position - file_start
    cdef const char *hit
    cdef int64_t found = -1
    with nogil:
        while at + FIXED_BYTES < mapped.size and file_start + at < end:
            # 0xDA begins both magics, which stand four bytes into a record.
            hit = <const char *> memchr(mapped.base + at + 4, 0xDA, min(end - file_start, mapped.size - 4) - at)
            if hit == NULL:
                break
            at = hit - mapped.base - 4
            if verify_record(mapped.base + at, mapped.size - at, file_start + at, True, &shape) == RECORD_OK:
                found = file_start + at
                break
            at += 1
    return found


def whole_records(MappedFile mapped not None, int64_t file_start, int64_t position, int64_t limit, int64_t max_bytes):
    """(reason, physical end) of the whole, checksummed records from `position` that end at or below `limit` and span at most
    max_bytes (the first one is always counted); the reason as in verify_span, "ok" when a bound ended the walk."""
    cdef Shape shape
    cdef RecordCheck found = RECORD_OK
    cdef int64_t at = position
    cdef int64_t file_end = file_start + mapped.size
    if limit > file_end:
        limit = file_end
    if position < file_start or position >= file_end:
        raise ValueError(f"offset {position} is outside the file at {file_start}")
    with nogil:
        while at < limit:
            found = shape_of(mapped.base + (at - file_start), file_end - at, &shape)
            if found == RECORD_OK and at + shape.size > limit:
                break
            if found == RECORD_OK and at > position and at + shape.size - position > max_bytes:
                break
            found = verify_record(mapped.base + (at - file_start), file_end - at, at, True, &shape)
            if found != RECORD_OK:
                break
            at += shape.size
    return CHECK_NAMES[found], at
