# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What :mod:`listwright.ranking.aggregates` asks of a list, in two passes over it, for which NumPy needs some forty.

Its arrays come from there, which has checked them: nothing is checked here.
"""

from libc.math cimport INFINITY, NAN, exp, log, sqrt
from libc.stdlib cimport free, malloc


cdef const float* _row(
    const float[:, ::1] features, Py_ssize_t number, const int[::1] columns, bint all_columns, float* room
) noexcept nogil:
    """The wanted columns of a row, side by side: loops over them then run in vector registers."""
    cdef Py_ssize_t m
    cdef const float* row = &features[number, 0]
    if all_columns:
        return row
    for m in range(columns.shape[0]):
        room[m] = row[columns[m]]
    return room


cdef void _statistics(
    const float[:, ::1] features,
    const int[::1] columns,
    const long long* rows,
    Py_ssize_t count,
    float* out,
    double* work,
    float* room,
) noexcept nogil:
    """Mean, standard deviation, minimum and maximum of what is there; NaN where nothing is. No ``rows``: the first."""
    cdef Py_ssize_t width = columns.shape[0], n, m
    cdef bint all_columns = width == features.shape[1]
    cdef const float* row
    cdef double* mean = work
    cdef double* present = work + width
    cdef double* square = work + 2 * width
    cdef float* low = out + 2 * width
    cdef float* high = out + 3 * width
    cdef bint holes = False
    cdef double apart
    for m in range(width):
        mean[m] = square[m] = 0.0
        low[m] = INFINITY
        high[m] = -INFINITY
    for n in range(count):
        row = _row(features, n if rows == NULL else rows[n], columns, all_columns, room)
        for m in range(width):
            mean[m] += row[m]
        for m in range(width):
            low[m] = row[m] if row[m] < low[m] else low[m]
        for m in range(width):
            high[m] = row[m] if row[m] > high[m] else high[m]
    for m in range(width):
        present[m] = count
        holes |= mean[m] != mean[m]
    if holes:
        _sums_of_present(features, columns, rows, count, mean, present, room)
    for m in range(width):
        mean[m] = mean[m] / present[m] if present[m] else NAN
    for n in range(count):
        row = _row(features, n if rows == NULL else rows[n], columns, all_columns, room)
        if holes:
            for m in range(width):
                apart = row[m] - mean[m]
                square[m] += apart * apart if apart == apart else 0.0
        else:
            for m in range(width):
                square[m] += (row[m] - mean[m]) * (row[m] - mean[m])
    for m in range(width):
        out[m] = <float>mean[m]
        out[width + m] = <float>sqrt(square[m] / present[m]) if present[m] else NAN
        low[m] = low[m] if present[m] else NAN
        high[m] = high[m] if present[m] else NAN


cdef void _sums_of_present(
    const float[:, ::1] features,
    const int[::1] columns,
    const long long* rows,
    Py_ssize_t count,
    double* total,
    double* present,
    float* room,
) noexcept nogil:
    """Sums and counts where some value is missing."""
    cdef Py_ssize_t width = columns.shape[0], n, m
    cdef const float* row
    for m in range(width):
        total[m] = present[m] = 0.0
    for n in range(count):
        row = _row(features, n if rows == NULL else rows[n], columns, width == features.shape[1], room)
        for m in range(width):
            total[m] += row[m] if row[m] == row[m] else 0.0  # NaN is not equal to itself
            present[m] += 1.0 if row[m] == row[m] else 0.0


cdef double _tau(const float[:, ::1] scores, const long long[::1] at, Py_ssize_t j, Py_ssize_t k) noexcept nogil:
    """Kendall's tau-a of two columns over some rows; 1 for a single one."""
    cdef Py_ssize_t count = at.shape[0], m, n
    cdef float one, other
    cdef Py_ssize_t agreed = 0
    for m in range(count):
        for n in range(m + 1, count):
            one = scores[at[m], j] - scores[at[n], j]
            other = scores[at[m], k] - scores[at[n], k]
            agreed += ((one > 0) - (one < 0)) * ((other > 0) - (other < 0))
    return 1.0 if count < 2 else 2.0 * agreed / (count * (count - 1))


def numbers(const float[:, ::1] features, const int[::1] columns, const long long[::1] top, float[::1] out):
    """Write the four statistics of every column into ``out``, over the list and then over its top."""
    cdef Py_ssize_t width = columns.shape[0], m
    cdef double* work = <double*>malloc((3 * sizeof(double) + sizeof(float)) * max(width, 1))
    if work == NULL:
        raise MemoryError()
    cdef float* room = <float*>(work + 3 * width)
    with nogil:
        if width > 0:
            _statistics(features, columns, NULL, features.shape[0], &out[0], work, room)
            if top.shape[0] == features.shape[0]:
                for m in range(4 * width):
                    out[4 * width + m] = out[m]
            else:
                _statistics(features, columns, &top[0], top.shape[0], &out[4 * width], work, room)
        free(work)


def first_stage(const double[::1] scores, const long long[::1] top, float[::1] out):
    """Write best, gap between the best two, standard deviation and entropy of the softmax into ``out``."""
    cdef Py_ssize_t count = scores.shape[0], n
    cdef double best = scores[top[0]], mean = 0.0, square = 0.0, total = 0.0, weighted = 0.0, weight
    with nogil:
        for n in range(count):
            mean += scores[n] / count
        for n in range(count):
            square += (scores[n] - mean) * (scores[n] - mean)
            weight = exp(scores[n] - best)
            total += weight
            weighted += weight * (scores[n] - best)
    out[0] = <float>best
    out[1] = <float>(best - scores[top[1]]) if top.shape[0] > 1 else 0.0
    out[2] = <float>sqrt(square / count)
    out[3] = <float>(log(total) - weighted / total)


def agreement(const float[:, ::1] scores, const long long[::1] at, float[::1] out):
    """Write the entropy of the softmax of every column into ``out``, in nats; then Kendall's tau-a of every two, over
    the rows ``at``.
    """
    cdef Py_ssize_t count = scores.shape[0], n, j, k, place = scores.shape[1]
    cdef double best, total, weighted, weight
    with nogil:
        for k in range(scores.shape[1]):
            best, total, weighted = -INFINITY, 0.0, 0.0
            for n in range(count):
                best = max(best, scores[n, k])
            for n in range(count):
                weight = exp(scores[n, k] - best)
                total += weight
                weighted += weight * (scores[n, k] - best)
            out[k] = <float>(log(total) - weighted / total)
        for j in range(scores.shape[1]):
            for k in range(j + 1, scores.shape[1]):
                out[place] = <float>_tau(scores, at, j, k)
                place += 1
