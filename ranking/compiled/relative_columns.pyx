# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The list-relative columns of :mod:`listwright.ranking.relative`, equal to its NumPy reference to the last bit.

Its arrays come from there, which has checked them: nothing is checked here. Every sum runs over sorted values, so that
the order of the candidates never matters.
"""

from libc.math cimport NAN, sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memset

ctypedef unsigned int Key
ctypedef unsigned long long Item

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* unsigned numbers in the order of the floats; both zeros are one */
    static inline uint32_t key_of_float(float value) {
        uint32_t bits;
        value += 0.0f;
        memcpy(&bits, &value, 4);
        return bits ^ ((bits >> 31) ? 0xFFFFFFFFu : 0x80000000u);
    }
    static inline float float_of_key(uint32_t key) {
        float value;
        uint32_t bits = key ^ ((key >> 31) ? 0x80000000u : 0xFFFFFFFFu);
        memcpy(&value, &bits, 4);
        return value;
    }
    """
    Key key_of_float(float value) noexcept nogil
    float float_of_key(Key key) noexcept nogil

cdef packed struct Source:
    int feature  # column of the features that is looked at
    int z  # column of the output; -1 for none
    int rank  # as z
    int unused
    double floor  # what is added to the variance

cdef enum:
    SHORT = 32  # up to which insertion is the fastest sort
    DIGITS = 4
    VALUES = 256


cdef inline Py_ssize_t _row(Item item) noexcept nogil:
    return <Py_ssize_t><Key>item


cdef inline float _value(Item item) noexcept nogil:
    return float_of_key(<Key>(item >> 32))


cdef void _insertion_sort(Item* items, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t n, at
    cdef Item item
    for n in range(1, count):
        item = items[n]
        at = n
        while at > 0 and items[at - 1] > item:
            items[at] = items[at - 1]
            at -= 1
        items[at] = item


cdef Item* _sorted(Item* items, Item* room, Py_ssize_t count) noexcept nogil:
    """The items in ascending order of their upper half; in one of the two arrays. Digits that all share are skipped."""
    cdef unsigned int counts[DIGITS][VALUES]
    cdef unsigned int start, here
    cdef Py_ssize_t n
    cdef int digit, value
    cdef Item* other
    if count <= SHORT:
        _insertion_sort(items, count)
        return items
    memset(counts, 0, sizeof(counts))
    for n in range(count):
        for digit in range(DIGITS):
            counts[digit][(items[n] >> (32 + 8 * digit)) & 255] += 1
    for digit in range(DIGITS):
        if counts[digit][(items[0] >> (32 + 8 * digit)) & 255] == count:
            continue
        start = 0
        for value in range(VALUES):
            here = counts[digit][value]
            counts[digit][value] = start
            start += here
        for n in range(count):
            value = (items[n] >> (32 + 8 * digit)) & 255
            room[counts[digit][value]] = items[n]
            counts[digit][value] += 1
        other = items
        items = room
        room = other
    return items


cdef void _one(
    const float[:, ::1] features, const Source* source, float[:, ::1] out, Item* items, Item* room
) noexcept nogil:
    """Both columns of one feature."""
    cdef Py_ssize_t count = 0, n, last, first, row
    cdef float value
    cdef double mean = 0.0, square = 0.0, apart, spread, place
    cdef Item* ranked
    cdef float standing
    for n in range(features.shape[0]):
        value = features[n, source.feature]
        if value == value:
            items[count] = (<Item>key_of_float(value) << 32) | <Item>n
            count += 1
        else:
            if source.z >= 0:
                out[n, source.z] = NAN
            if source.rank >= 0:
                out[n, source.rank] = NAN
    if count == 0:
        return
    ranked = _sorted(items, room, count)
    if source.z >= 0:
        if ranked[0] >> 32 == ranked[count - 1] >> 32:
            for n in range(count):
                out[_row(ranked[n]), source.z] = 0.0
        else:
            for n in range(count):
                mean += _value(ranked[n])
            mean /= count
            for n in range(count):
                apart = _value(ranked[n]) - mean
                square += apart * apart
            spread = sqrt(square / count + source.floor)
            for n in range(count):
                row = _row(ranked[n])
                out[row, source.z] = <float>((_value(ranked[n]) - mean) / spread)
    if source.rank >= 0:
        first = 0
        while first < count:
            last = first
            while last + 1 < count and ranked[last + 1] >> 32 == ranked[first] >> 32:
                last += 1
            place = 0.5 if count == 1 else (first + last) / (2.0 * (count - 1))
            standing = <float>place
            for n in range(first, last + 1):
                out[_row(ranked[n]), source.rank] = standing
            first = last + 1


def write(const float[:, ::1] features, const Source[::1] sources, float[:, ::1] out):
    """Write the columns of every source into ``out``; the lock is released meanwhile.

    Args:
        features: ``(L, D)``, NaN = missing.
        sources: as :data:`listwright.ranking.relative.SOURCE` has them.
        out: ``(L, W)``; only the columns that the sources name are written.

    Raises:
        MemoryError: if there is none for two columns.
    """
    cdef Py_ssize_t length = features.shape[0], s
    cdef Item* items = <Item*>malloc(2 * sizeof(Item) * max(length, 1))
    if items == NULL:
        raise MemoryError()
    with nogil:
        for s in range(sources.shape[0]):
            _one(features, &sources[s], out, items, items + length)
    free(items)
