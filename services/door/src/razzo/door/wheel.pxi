# Deadlines of all calls: a timing wheel, because a timer of the loop for each call would cost more than the call.
# A deadline is acted on at most one tick late. Entries are borrowed: a stream takes itself off before it dies.

cdef enum:
    WHEEL_SLOTS = 512
    TICK_MS = 16

cdef int64_t TICK_NS = TICK_MS * <int64_t>1000000


@cython.final
@cython.no_gc
cdef class Wheel:
    cdef PyObject *slots[WHEEL_SLOTS]
    cdef int64_t ticked  # the last tick that was done
    cdef readonly Py_ssize_t size

    def __cinit__(self):
        memset(self.slots, 0, sizeof(self.slots))
        self.ticked = monotonic_ns() // TICK_NS

    cdef void add(self, Stream stream) noexcept:
        cdef int64_t tick = stream.deadline_ns // TICK_NS + 1
        if self.size == 0:
            self.ticked = monotonic_ns() // TICK_NS
        if tick <= self.ticked:
            tick = self.ticked + 1
        cdef int slot = <int>(tick % WHEEL_SLOTS)
        stream.wheel_slot = slot
        stream.wheel_previous = NULL
        stream.wheel_next = self.slots[slot]
        if stream.wheel_next != NULL:
            (<Stream>stream.wheel_next).wheel_previous = <PyObject *>stream
        self.slots[slot] = <PyObject *>stream
        self.size += 1

    cdef void remove(self, Stream stream) noexcept:
        if stream.wheel_previous != NULL:
            (<Stream>stream.wheel_previous).wheel_next = stream.wheel_next
        else:
            self.slots[stream.wheel_slot] = stream.wheel_next
        if stream.wheel_next != NULL:
            (<Stream>stream.wheel_next).wheel_previous = stream.wheel_previous
        stream.wheel_next = NULL
        stream.wheel_previous = NULL
        stream.wheel_slot = -1
        self.size -= 1

    cdef list expired(self, int64_t now_ns):
        """The streams whose deadline has passed, taken off the wheel."""
        cdef list streams = []
        cdef int64_t now_tick = now_ns // TICK_NS
        cdef int64_t tick = self.ticked + 1
        cdef PyObject *at
        cdef Stream stream
        if now_tick - tick >= WHEEL_SLOTS:
            tick = now_tick - WHEEL_SLOTS + 1  # every slot once is all there is to look at
        while tick <= now_tick:
            at = self.slots[tick % WHEEL_SLOTS]
            while at != NULL:
                stream = <Stream>at
                at = stream.wheel_next
                if stream.deadline_ns <= now_ns:
                    self.remove(stream)
                    streams.append(stream)
            tick += 1
        self.ticked = now_tick
        return streams
