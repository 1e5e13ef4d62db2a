# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, embedsignature=True
# distutils: language = c
"""The storage kernel: everything that touches record bytes, crossed once per batch.

Parts, in the order they build on one another (each `.pxi` says which format section of `store-and-semantics.md` it follows):

    big_endian.pxi   big-endian loads and stores, Java string hash, SipHash-2-4
    mapping.pxi      MappedFile: a mapping that lives as long as anybody holds it
    properties.pxi   the four properties the store itself needs, found in one pass
    records.pxi      Prepared (one message as C sees it), sizes, encoding, verification
    queues.pxi       QueueState, the topic table, 20-byte units
    topics.pxi       TopicTable: topics and their queues, found by their bytes
    index.pxi        slots, units and chains of the key index; IndexFiles
    segments.pxi     LogSegments: commit-log files the writer may write to
    prepare.pxi      RecordRules: NewMessage tuples to Prepared
    writer.pxi       LogWriter: plan a batch, then write it
    dispatch.pxi     recovery: records of the log into queues and index
    scan.pxi         verification of a mapped log for recovery, tails of whole records
    decode.pxi       StoredMessage and the filtered scan behind `Store.read`
    face_helpers.pxi siphash24, tag_hash, offset message ids for Python callers
    wire.pxi         protobuf reading and writing without objects
    send_walk.pxi    SendMessageRequest, read
    send_wire.pxi    SendWire: requests to records, records to answers
    handle_seal.pxi  HandleSeal: receipt handles, made and opened
    receive_wire.pxi ReceiveWire: records to the elements of a receive stream
    ack_wire.pxi     AckWire: acknowledgements to the deliveries they name

Hot wire paths plug in here: a producer of `Prepared` items (send_wire.pxi) fills `LogWriter.items[0:n]` from raw request
bytes, sets `LogWriter.count` and calls `LogWriter.run()`; a consumer (receive_wire.pxi) walks units as `collect` in
decode.pxi does, and frames record bytes instead of building StoredMessage.

Threads: LogWriter belongs to one thread. Readers run in any thread; they hold the interpreter lock while they look at
QueueState, and hold references to MappedFile while they look at bytes without it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from libc.errno cimport errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    int PyTuple_Check(object o)

include "big_endian.pxi"
include "mapping.pxi"
include "properties.pxi"
include "records.pxi"
include "queues.pxi"
include "topics.pxi"
include "index.pxi"
include "segments.pxi"
include "prepare.pxi"
include "writer.pxi"
include "dispatch.pxi"
include "scan.pxi"
include "decode.pxi"
include "face_helpers.pxi"
include "wire.pxi"
include "send_walk.pxi"
include "send_wire.pxi"
include "handle_seal.pxi"
include "receive_wire.pxi"
include "ack_wire.pxi"
