# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads plain LETOR text straight into a matrix, and gives up on anything else.

What is accepted here means the same to the two other parsers, which is what a property test holds them to; what is not
plainly right is left to them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.math cimport NAN, fabs
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memchr, memcmp

import numpy as np

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1.0

cdef double[23] POWERS
cdef int _n
for _n in range(23):
    POWERS[_n] = 10.0 ** _n


cdef inline bint blank(char c) noexcept:
    return c == c' ' or c == c'\t' or c == c'\r'


cdef inline bint digit(char c) noexcept:
    return c >= c'0' and c <= c'9'


cdef const char* number(const char* at, const char* end, double* value) except? NULL:
    """Read a number as ``float()`` does: where it ends, or NULL where none stands, or none in plain spelling.

    Up to 2^53 times or by a power of ten up to 10^22, one operation rounds as it should (Clinger, 1990).
    """
    cdef const char* start = at
    cdef bint negative = False
    cdef uint64_t digits = 0
    cdef int seen = 0, shift = 0, power = 0
    cdef bint negative_power = False
    cdef char* stop
    if at < end and (at[0] == c'-' or at[0] == c'+'):
        negative = at[0] == c'-'
        at += 1
    while at < end and digit(at[0]):
        digits = 10 * digits + (at[0] - c'0')
        seen += 1
        at += 1
    if at < end and at[0] == c'.':
        at += 1
        while at < end and digit(at[0]):
            digits = 10 * digits + (at[0] - c'0')
            seen += 1
            shift -= 1
            at += 1
    if seen == 0:
        return NULL
    if at < end and (at[0] == c'e' or at[0] == c'E'):
        at += 1
        if at < end and (at[0] == c'-' or at[0] == c'+'):
            negative_power = at[0] == c'-'
            at += 1
        if at == end or not digit(at[0]):
            return NULL
        while at < end and digit(at[0]):
            if power < 10_000:
                power = 10 * power + (at[0] - c'0')
            at += 1
        shift += -power if negative_power else power
    if seen <= 19 and digits <= <uint64_t>1 << 53 and -22 <= shift <= 22:
        value[0] = <double>digits * POWERS[shift] if shift >= 0 else <double>digits / POWERS[-shift]
        if negative:
            value[0] = -value[0]
        return at
    value[0] = PyOS_string_to_double(start, &stop, NULL)
    return at if stop == at else NULL


cdef Py_ssize_t last_index(const char* line, const char* end) noexcept:
    """The index of a line's last pair, which is its largest; -1 where it has none."""
    cdef const char* at = end
    cdef Py_ssize_t index = 0, power = 1
    while at > line and (at - 1)[0] != c':':
        at -= 1
    if at == line:
        return -1
    at -= 1
    while at > line and digit((at - 1)[0]) and power <= 100_000_000:
        at -= 1
        index += power * (at[0] - c'0')
        power *= 10
    return index if power > 1 else -1


def scan(bytes chunk, Py_ssize_t first_line, bint with_qid, Py_ssize_t max_index, int max_label,
         double bound, double marker):
    """Parse the lines of a chunk.

    Args:
        chunk: ends at a line's end.
        first_line: number of its first line.
        with_qid: whether every line names its query.
        max_index, max_label: largest that there may be.
        bound: smallest number that is too large.
        marker: a number beyond the bound that means a missing value.

    Returns:
        Features, labels, query ids of runs, rows in runs, lines of rows; None on any doubt.
    """
    cdef const char* text = PyBytes_AS_STRING(chunk)
    cdef const char* limit = text + PyBytes_GET_SIZE(chunk)
    cdef const char* at = text
    cdef const char* end
    cdef const char* stop
    cdef const char* qid
    cdef const char* known = NULL
    cdef Py_ssize_t known_length = 0, length, index, last, width = 0, count = 0, row = 0, line = first_line, r = -1
    cdef int label
    cdef double value
    while at < limit:  # how large the matrix is
        end = <const char*>memchr(at, c'\n', limit - at)
        if end == NULL:
            return None
        stop = <const char*>memchr(at, c'#', end - at)
        index = last_index(at, end if stop == NULL else stop)
        if index > max_index:
            return None
        width = max(width, index)
        count += 1
        at = end + 1
    # a qid has a colon, too: of a line without features it is the last one
    features = np.zeros((count, width), dtype=np.float32)
    labels = np.empty(count, dtype=np.int32)
    lines = np.empty(count, dtype=np.int64)
    runs = np.empty(count, dtype=np.int64)
    qids = []
    cdef float[:, ::1] cells = features
    cdef int32_t[::1] judged = labels
    cdef int64_t[::1] places = lines
    cdef int64_t[::1] rows = runs
    cdef Py_ssize_t widest = 0
    at = text
    while at < limit:
        end = <const char*>memchr(at, c'\n', limit - at)
        stop = end
        end = <const char*>memchr(at, c'#', stop - at)
        if end == NULL:
            end = stop
        while at < end and blank(at[0]):
            at += 1
        if at == end:  # nothing but blanks or a comment
            at = stop + 1
            line += 1
            continue
        label = 0
        if not digit(at[0]):
            return None
        while at < end and digit(at[0]):
            label = 10 * label + (at[0] - c'0')
            if label > max_label:
                return None
            at += 1
        if at < end and not blank(at[0]):
            return None
        while at < end and blank(at[0]):
            at += 1
        if with_qid:
            if end - at < 5 or memcmp(at, b"qid:", 4) != 0:
                return None
            at += 4
            qid = at
            while at < end and not blank(at[0]):
                if at[0] <= c' ' or at[0] > c'~':  # control characters, and what is no ASCII
                    return None
                at += 1
            length = at - qid
            if length == 0:
                return None
            if known == NULL or length != known_length or memcmp(known, qid, length) != 0:
                known, known_length = qid, length
                qids.append(qid[:length].decode("ascii"))
                r += 1
                rows[r] = 0
            rows[r] += 1
            while at < end and blank(at[0]):
                at += 1
        last = 0
        while at < end:
            index = 0
            if not digit(at[0]):
                return None
            while at < end and digit(at[0]):
                index = 10 * index + (at[0] - c'0')
                if index > max_index:
                    return None
                at += 1
            if index <= last or at == end or at[0] != c':':
                return None
            at += 1
            last = index
            if end - at >= 4 and memcmp(at, b"NULL", 4) == 0:
                value = NAN
                at += 4
            elif end - at >= 3 and (memcmp(at, b"nan", 3) == 0 or memcmp(at, b"NaN", 3) == 0):
                value = NAN
                at += 3
            else:
                at = number(at, end, &value)
                if at == NULL:
                    return None
                if fabs(value) >= bound:
                    if value != marker:
                        return None
                    value = NAN
            if at < end and not blank(at[0]):
                return None
            if index > width:
                return None
            cells[row, index - 1] = <float>value
            while at < end and blank(at[0]):
                at += 1
        widest = max(widest, last)
        judged[row] = label
        places[row] = line
        row += 1
        line += 1
        at = stop + 1
    features = features[:row, :widest] if widest == width else np.ascontiguousarray(features[:row, :widest])
    return features, labels[:row], qids, runs[: r + 1], lines[:row]
