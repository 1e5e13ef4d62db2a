# One method of the table as the door sees it, and its counters (observers.MethodCounts, kept in C).

cdef enum:
    KIND_BATCH = 0
    KIND_UNARY = 1
    KIND_SERVER_STREAM = 2
    KIND_BIDI = 3

cdef enum:  # gRPC statuses that the door itself gives
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14

cdef enum:
    STATUSES = 17
    BUCKETS = 28

_KINDS = {
    Kind.UNARY_BATCH: KIND_BATCH,
    Kind.UNARY: KIND_UNARY,
    Kind.SERVER_STREAM: KIND_SERVER_STREAM,
    Kind.BIDI: KIND_BIDI,
}
_STATUS = tuple(GrpcStatus(number) for number in range(STATUSES))
assert LATENCY_BUCKETS == BUCKETS, "observers.py and route.pxi disagree on the number of buckets"


@cython.final
cdef class Route:
    cdef readonly str path
    cdef bytes path_bytes
    cdef int kind
    cdef object handler
    cdef list gathered  # calls of the read that is being dispatched
    cdef uint64_t started
    cdef int64_t in_flight
    cdef uint64_t by_status[STATUSES]
    cdef uint64_t latency[BUCKETS]
    cdef int64_t latency_sum_ns

    def __cinit__(self, method):
        self.path = method.path
        self.path_bytes = method.path.encode()
        self.kind = _KINDS[method.kind]
        self.handler = method.handler
        self.gathered = []
        self.started = 0
        self.in_flight = 0
        self.latency_sum_ns = 0
        memset(self.by_status, 0, sizeof(self.by_status))
        memset(self.latency, 0, sizeof(self.latency))

    cdef inline void begin(self) noexcept:
        self.started += 1
        self.in_flight += 1

    cdef inline void end(self, int status, int64_t duration_ns) noexcept:
        cdef uint64_t us = <uint64_t>(duration_ns if duration_ns > 0 else 0) // 1000
        cdef int bucket = 64 - __builtin_clzll(us) if us else 0
        self.in_flight -= 1
        self.by_status[status] += 1
        self.latency[bucket if bucket < BUCKETS else BUCKETS - 1] += 1
        self.latency_sum_ns += duration_ns

    def counts(self):
        """The counters so far, a `MethodCounts`."""
        return MethodCounts(
            started=self.started,
            in_flight=self.in_flight,
            by_status={_STATUS[i]: self.by_status[i] for i in range(STATUSES) if self.by_status[i]},
            latency_buckets=[self.latency[i] for i in range(BUCKETS)],
            latency_sum_s=self.latency_sum_ns / 1e9,
        )
