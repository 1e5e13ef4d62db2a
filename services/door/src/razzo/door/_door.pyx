# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native door: gRPC over HTTP/2 for client ports. nghttp2 does HTTP/2, this module does gRPC on top of it.

Parts, in the order a request passes them: `connection.pxi` (bytes in, bytes out), `session.pxi` (nghttp2's callbacks),
`receive.pxi` (request messages), `stream.pxi` (one call; what a batch handler sees), `call.pxi` (what a coroutine sees),
`send.pxi` (answers); `limits.pxi` says when a connection has gone too far; `shared.pxi`, `wheel.pxi` and `route.pxi`
are what all connections have in common.
"""

import asyncio
import base64
import logging
import re
import zlib
from collections import deque

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE, _PyBytes_Resize
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from razzo.door.methods import GrpcStatus, Kind, RpcError
from razzo.door.observers import LATENCY_BUCKETS, AccessRecord, MethodCounts

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    Py_ssize_t reference_count "Py_REFCNT"(PyObject *thing)

cdef extern from *:
    int __builtin_clzll(unsigned long long)

log = logging.getLogger("razzo.door.native")

cdef bytes INTERNAL_TEXT = b"internal error"


cdef inline int64_t monotonic_ns() noexcept:
    """The clock of asyncio's event loops."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


include "nghttp2.pxi"

cdef class Connection
cdef class Stream
cdef class Call
cdef class Door

include "route.pxi"
include "metadata.pxi"
include "stream.pxi"
include "wheel.pxi"
include "send.pxi"
include "receive.pxi"
include "session.pxi"
include "limits.pxi"
include "connection.pxi"
include "call.pxi"
include "shared.pxi"
