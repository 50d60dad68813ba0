# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Served records as bytes, as :mod:`listwright.ranking.served.encoding` has them from fastavro, in one pass.

The format: Apache Avro specification, "Binary encoding". The fields and their order: ``ranking/served/schema.py``.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    LONGEST = 10  # bytes of a whole number at most
    MOST_KEPT = 2 << 20  # bytes of room that a block keeps for its next records


cdef Py_ssize_t _room(object text) except -1:
    """Bytes that a text or None takes at most."""
    cdef Py_ssize_t size = 0
    if text is not None:
        PyUnicode_AsUTF8AndSize(text, &size)
    return size + LONGEST + 1


cdef inline char* _long(char* at, long long value) noexcept:
    """A variable-length, zigzag-coded whole number."""
    cdef unsigned long long coded = (<unsigned long long>value << 1) ^ <unsigned long long>(value >> 63)
    while coded >= 0x80:
        at[0] = <char>((coded & 0x7F) | 0x80)
        coded >>= 7
        at += 1
    at[0] = <char>coded
    return at + 1


cdef inline char* _block(char* at, const void* content, Py_ssize_t size) noexcept:
    """Bytes behind their number."""
    at = _long(at, size)
    memcpy(at, content, size)
    return at + size


cdef char* _text(char* at, object text) except NULL:
    cdef Py_ssize_t size
    cdef const char* content = PyUnicode_AsUTF8AndSize(text, &size)
    return _block(at, content, size)


cdef char* _places(char* at, tuple places) except NULL:
    """An array of whole numbers."""
    cdef long long place
    if len(places):
        at = _long(at, len(places))
        for place in places:
            at = _long(at, place)
    return _long(at, 0)


cdef char* _intervention(char* at, object done) except NULL:
    cdef double propensity
    if done is None:
        return _long(at, 0)
    at = _places(_text(_long(at, 1), done.kind), done.places)
    propensity = done.propensity
    memcpy(at, &propensity, 8)
    return at + 8


cdef char* _shadow(char* at, object seen) except NULL:
    if seen is None:
        return _long(at, 0)
    return _text(_places(_text(_long(at, 1), seen.bundle), seen.order), seen.status)


cdef char* _timings(char* at, tuple timings_ms) except NULL:
    cdef double milliseconds
    if len(timings_ms):
        at = _long(at, len(timings_ms))
        for step, milliseconds in timings_ms:
            at = _text(at, step)
            memcpy(at, &milliseconds, 8)
            at += 8
    return _long(at, 0)


cdef Py_ssize_t _bound(object record, tuple timings_ms) except -1:
    """Bytes that a record takes at most, without those of its arrays."""
    cdef Py_ssize_t size = 24 * LONGEST
    for some in (
        record.candidate_ids,
        record.teams or (),
        (record.query_id, record.unit, record.bundle, record.fingerprint, record.strategy, record.route),
        (record.degraded, record.experiment, record.arm, record.request_id),
    ):
        for text in some:
            size += _room(text)
    if record.intervention is not None:
        size += _room(record.intervention.kind) + LONGEST * len(record.intervention.places)
    if record.shadow is not None:
        size += _room(record.shadow.bundle) + _room(record.shadow.status) + LONGEST * len(record.shadow.order)
    for step, _ in timings_ms:
        size += _room(step) + 8
    return size


cdef char* _optional(char* at, object text) except NULL:
    """A text of the second branch of a union, or null of its first."""
    if text is None:
        return _long(at, 0)
    return _text(_long(at, 1), text)


cdef char* _texts(char* at, tuple texts) except NULL:
    """An array: one block, and a block of none."""
    if len(texts):
        at = _long(at, len(texts))
        for text in texts:
            at = _text(at, text)
    return _long(at, 0)


cdef class Block:
    """Records one behind the other, in room that is used again. One thread at a time.

    Attributes:
        records: how many.
        size: bytes of all of them.
    """

    cdef bytearray _room
    cdef Py_ssize_t _last
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t size

    def __cinit__(self):
        self._room = bytearray()

    def add(
        self,
        object record,
        long long served_at,
        const float[:, ::1] features,
        const double[::1] first_stage_scores,
        const double[::1] scores,
        const long long[:] order,
    ):
        """Encode a record behind the others, or nothing of it.

        Args:
            record: a served record.
            served_at: its microseconds since 1970, UTC.
            features, first_stage_scores, scores, order: its arrays.

        Raises:
            UnicodeEncodeError: if a text has a lone surrogate.
            TypeError: if a text is none.
            BufferError: if the room must grow while someone holds a view.
        """
        cdef Py_ssize_t width = 4 * features.shape[0] * features.shape[1], places = order.shape[0], n
        cdef Py_ssize_t numbers = 8 * (first_stage_scores.shape[0] + scores.shape[0]) + LONGEST * places
        cdef tuple timings_ms = tuple(record.timings_ms.items())
        self._reserve(self.size + width + numbers + _bound(record, timings_ms))
        cdef char* start = PyByteArray_AS_STRING(self._room)
        cdef char* at = _long(_text(start + self.size, record.query_id), served_at)
        at = _optional(at, record.unit)
        at = _text(_text(at, record.bundle), record.fingerprint)
        at = _long(_texts(at, record.candidate_ids), width)
        memcpy(at, &features[0, 0], width)  # with Python's lock: to lose it and take it again takes longer
        at += width
        at = _block(at, &first_stage_scores[0], 8 * first_stage_scores.shape[0])
        at = _block(at, &scores[0], 8 * scores.shape[0])
        if places:
            at = _long(at, places)
            for n in range(places):
                at = _long(at, order[n])
        at = _long(at, 0)
        at = _long(at, 0) if record.top_n is None else _long(_long(at, 1), record.top_n)
        at = _text(at, record.strategy)
        for text in (record.route, record.degraded, record.experiment, record.arm):
            at = _optional(at, text)
        at = _long(at, 0) if record.teams is None else _texts(_long(at, 1), record.teams)
        at = _shadow(_intervention(at, record.intervention), record.shadow)
        at = _text(_timings(at, timings_ms), record.request_id)
        self._last, self.size = self.size, at - start
        self.records += 1

    def view(self):
        """The bytes, until :meth:`clear`; no record may be added while someone holds them."""
        return memoryview(self._room)[: self.size]

    def last(self):
        """The bytes of the last record, copied."""
        return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self._room) + self._last, self.size - self._last)

    def clear(self):
        """Forget all records."""
        self.records = self.size = self._last = 0
        if PyByteArray_GET_SIZE(self._room) > MOST_KEPT:
            self._room = bytearray()

    cdef int _reserve(self, Py_ssize_t size) except -1:
        if PyByteArray_GET_SIZE(self._room) < size:
            PyByteArray_Resize(self._room, size + size // 4)
        return 0
