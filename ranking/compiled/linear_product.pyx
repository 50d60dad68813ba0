# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The linear specialists of :mod:`listwright.ranking.compiled.linear`, all of them in one pass over a list.

Its arrays come from there, which has checked them: nothing is checked here.
"""

from libc.math cimport isnan
from libc.stdlib cimport free, malloc

DEF LANES = 16

WIDTH = LANES
"""The columns of ``weights`` are padded with zeros to a multiple of this."""


cdef class Linear:
    """Holds the arrays, as taking hold of each costs more than a short list's product."""

    cdef const int[::1] columns, category_columns, category_starts
    cdef const float[::1] fills, lows, highs, means, scales
    cdef const float[:, ::1] weights, missing_weights, category_weights

    def __init__(
        self, columns, fills, lows, highs, means, scales, weights, missing_weights,
        category_columns, category_starts, category_weights,
    ):
        self.columns, self.fills, self.lows, self.highs = columns, fills, lows, highs
        self.means, self.scales, self.weights, self.missing_weights = means, scales, weights, missing_weights
        self.category_columns, self.category_starts = category_columns, category_starts
        self.category_weights = category_weights

    def score(self, const float[:, ::1] features, float[:, ::1] out):
        """Write the scores of ``(rows, E)`` inputs into ``out``, ``(rows, K)``.

        Raises:
            MemoryError: if there is none for one row.
        """
        cdef Py_ssize_t n
        cdef float* z = <float*>malloc(sizeof(float) * max(self.weights.shape[1], 1))
        if z == NULL:
            raise MemoryError()
        with nogil:
            for n in range(features.shape[0]):
                self._score_row(&features[n, 0], z, &out[n, 0], out.shape[1])
        free(z)

    cdef void _score_row(self, const float* row, float* z, float* out, Py_ssize_t outputs) noexcept nogil:
        cdef Py_ssize_t width = self.columns.shape[0], padded = self.weights.shape[1], m, k
        cdef int holes = 0
        cdef float value
        # the compiler puts loops over plain pointers into vector registers
        cdef const int* columns = &self.columns[0] if width else NULL
        cdef const float* fills = &self.fills[0] if width else NULL
        cdef const float* lows = &self.lows[0] if width else NULL
        cdef const float* highs = &self.highs[0] if width else NULL
        cdef const float* means = &self.means[0] if width else NULL
        cdef const float* scales = &self.scales[0] if width else NULL
        for m in range(width):
            z[m] = row[columns[m]]
        for m in range(width):
            holes |= z[m] != z[m]  # NaN is not equal to itself
        if holes:
            for m in range(width):
                z[m] = fills[m] if isnan(z[m]) else z[m]
        for m in range(width):
            value = z[m] if z[m] > lows[m] else lows[m]
            value = value if value < highs[m] else highs[m]
            z[m] = (value - means[m]) * scales[m]
        for m in range(width, padded):
            z[m] = 0.0
        for k in range(outputs):
            out[k] = self._product(z, k, padded)
        if holes:
            for m in range(width):
                if isnan(row[self.columns[m]]):
                    for k in range(outputs):
                        out[k] += self.missing_weights[k, m]
        for m in range(self.category_columns.shape[0]):
            self._add_category(row[self.category_columns[m]], m, out, outputs)

    cdef float _product(self, const float* z, Py_ssize_t k, Py_ssize_t padded) noexcept nogil:
        """In as many sums as fit vector registers: a single one would wait for each addition."""
        cdef float sums[LANES]
        cdef float total = 0.0
        cdef const float* w = &self.weights[k, 0] if padded else NULL
        cdef Py_ssize_t m, lane
        for lane in range(LANES):
            sums[lane] = 0.0
        for m in range(0, padded, LANES):
            for lane in range(LANES):
                sums[lane] += z[m + lane] * w[m + lane]
        for lane in range(LANES):
            total += sums[lane]
        return total

    cdef void _add_category(self, float code, Py_ssize_t place, float* out, Py_ssize_t outputs) noexcept nogil:
        """The weights of a category's 0/1 column; an unknown or missing one has none."""
        cdef Py_ssize_t start = self.category_starts[place], number, k
        cdef Py_ssize_t size = self.category_starts[place + 1] - start
        if code >= 1 and code <= size:
            number = <Py_ssize_t>code
            if number == code:
                for k in range(outputs):
                    out[k] += self.category_weights[k, start + number - 1]
