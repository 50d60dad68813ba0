# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The bytes of a served record, as :mod:`listwright.ranking.served.encoding` has them from fastavro, in one pass.

The format: Apache Avro specification, "Binary encoding". The fields and their order: ``ranking/served/schema.py``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    LONGEST = 10  # bytes of a whole number at most


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


def encoded(
    tuple before not None,
    long long served_at,
    unit,
    tuple names not None,
    tuple candidate_ids not None,
    const float[:, ::1] features,
    const double[::1] first_stage_scores,
    const double[::1] scores,
    const long long[:] order,
    top_n,
    tuple after not None,
    teams,
    dict timings_ms not None,
    request_id not None,
):
    """The bytes of a record without an intervention and a shadow, in three pieces: before, of and behind the features.

    Args:
        before: query id.
        served_at: microseconds since 1970, UTC.
        unit: text or None.
        names: bundle and fingerprint.
        candidate_ids: ``L`` texts.
        features: ``(L, D)``.
        first_stage_scores, scores: ``(L,)``.
        order: ``(n,)``.
        top_n: number or None.
        after: strategy, and then route, reason of a degraded answer, experiment and arm, each a text or None.
        teams: tuple of texts, or None.
        timings_ms: milliseconds by step.
        request_id: of the HTTP request.

    Raises:
        UnicodeEncodeError: if a text has a lone surrogate.
        TypeError: if a text is none.
    """
    cdef Py_ssize_t bound = 16 * LONGEST
    cdef Py_ssize_t places = order.shape[0], n
    cdef double value
    cdef Py_ssize_t width = 4 * features.shape[0] * features.shape[1]
    bound += 8 * (first_stage_scores.shape[0] + scores.shape[0])
    bound += places * LONGEST
    for some in (before, names, candidate_ids, after, (unit, request_id), teams or ()):
        for text in some:
            bound += _room(text)
    for step in timings_ms:
        bound += _room(step) + 8
    cdef bytes room = PyBytes_FromStringAndSize(NULL, bound)
    cdef char* start = PyBytes_AS_STRING(room)
    cdef char* at = _text(start, before[0])
    at = _long(at, served_at)
    at = _optional(at, unit)
    at = _text(at, names[0])
    at = _text(at, names[1])
    at = _texts(at, candidate_ids)
    at = _long(at, width)
    cdef char* behind = at
    at = _block(at, &first_stage_scores[0], 8 * first_stage_scores.shape[0])
    at = _block(at, &scores[0], 8 * scores.shape[0])
    if places:
        at = _long(at, places)
        for n in range(places):
            at = _long(at, order[n])
    at = _long(at, 0)
    at = _long(at, 0) if top_n is None else _long(_long(at, 1), top_n)
    at = _text(at, after[0])
    for n in range(1, 5):
        at = _optional(at, after[n])
    at = _long(at, 0) if teams is None else _texts(_long(at, 1), teams)
    at = _long(_long(at, 0), 0)
    if timings_ms:
        at = _long(at, len(timings_ms))
        for step, milliseconds in timings_ms.items():
            at = _text(at, step)
            value = milliseconds
            memcpy(at, &value, 8)
            at += 8
    at = _long(at, 0)
    at = _text(at, request_id)
    return (
        PyBytes_FromStringAndSize(start, behind - start),
        PyBytes_FromStringAndSize(<const char*>&features[0, 0], width),
        PyBytes_FromStringAndSize(behind, at - behind),
    )
