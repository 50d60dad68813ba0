# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The list-relative columns of :mod:`listwright.ranking.relative`, equal to its NumPy reference to the last bit.

Its arrays come from there, which has checked them: nothing is checked here. Every sum runs over sorted values, so that
the order of the candidates never matters.
"""

from libc.float cimport FLT_MAX
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
    int within  # column of the features within whose equal codes it is compared; -1 for the whole list
    int z  # column of the output; -1 for none, as for those that follow
    int rank
    int count
    int share
    int distinct
    int above
    double floor  # what is added to the variance

cdef enum:
    SHORT = 32  # up to which insertion is the fastest sort
    DIGITS = 4
    VALUES = 256


cdef inline Py_ssize_t _row(Item item) noexcept nogil:
    return <Py_ssize_t><Key>item


cdef inline Key _group(float code, Py_ssize_t row) noexcept nogil:
    """A number for each known code, its highest bit set, and one of its own for a candidate without: its row."""
    return key_of_float(code) if code > 0.0 else <Key>row


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


cdef inline void _write_ranks(float[:, ::1] out, int column, const Item* ranked, Py_ssize_t count) noexcept nogil:
    """The mid-ranks of ascending items, as fractions."""
    cdef Py_ssize_t first = 0, last, n
    cdef double place
    while first < count:
        last = first
        while last + 1 < count and ranked[last + 1] >> 32 == ranked[first] >> 32:
            last += 1
        place = 0.5 if count == 1 else (first + last) / (2.0 * (count - 1))
        for n in range(first, last + 1):
            out[_row(ranked[n]), column] = <float>place
        first = last + 1


cdef void _write_number(
    const float[:, ::1] features, const Source* source, float[:, ::1] out, Item* items, Item* room
) noexcept nogil:
    """The columns of one numeric feature."""
    cdef Py_ssize_t count = 0, n, first, last, length = features.shape[0]
    cdef float value
    cdef double mean = 0.0, square = 0.0, apart, spread
    cdef Item* ranked
    cdef Item* groups
    for n in range(length):
        value = features[n, source.feature]
        if source.z >= 0:
            out[n, source.z] = NAN
        if source.rank >= 0:
            out[n, source.rank] = NAN
        if source.above >= 0:
            out[n, source.above] = NAN
        if value == value:
            items[count] = (<Item>key_of_float(value) << 32) | <Item>n
            count += 1
    if count == 0:
        return
    ranked = _sorted(items, room, count)
    if source.within >= 0:  # sorts the places by code, so that each code's candidates follow each other, ascending
        for n in range(count):
            first = _row(ranked[n])
            items[2 * length + n] = (<Item>_group(features[first, source.within], first) << 32) | <Item>n
        groups = _sorted(items + 2 * length, items + 3 * length, count)
        room = items if ranked == room else room
        for n in range(count):
            room[n] = ranked[_row(groups[n])]
        first = 0
        while first < count:
            last = first + 1
            while last < count and groups[last] >> 32 == groups[first] >> 32:
                last += 1
            if source.rank >= 0:
                _write_ranks(out, source.rank, room + first, last - first)
            if source.above >= 0:
                for n in range(first, last):
                    out[_row(room[n]), source.above] = <float>min(<double>_value(room[n]) - <double>_value(room[first]), <double>FLT_MAX)
            first = last
        return
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
                out[_row(ranked[n]), source.z] = <float>((_value(ranked[n]) - mean) / spread)
    if source.rank >= 0:
        _write_ranks(out, source.rank, ranked, count)


cdef void _write_category(
    const float[:, ::1] features, const Source* source, float[:, ::1] out, Item* items, Item* room
) noexcept nogil:
    """The columns of one categorical feature."""
    cdef Py_ssize_t distinct = 0, n, first = 0, last, length = features.shape[0]
    cdef Item* ranked
    for n in range(length):
        items[n] = (<Item>_group(features[n, source.feature], n) << 32) | <Item>n
    ranked = _sorted(items, room, length)
    while first < length:
        last = first + 1
        while last < length and ranked[last] >> 32 == ranked[first] >> 32:
            last += 1
        for n in range(first, last):
            if source.count >= 0:
                out[_row(ranked[n]), source.count] = <float>(last - first)
            if source.share >= 0:
                out[_row(ranked[n]), source.share] = <float>((last - first) / <double>length)
        distinct += ranked[first] >> 63
        first = last
    if source.distinct >= 0:
        for n in range(length):
            out[n, source.distinct] = <float>distinct


def write(const float[:, ::1] features, const Source[::1] sources, float[:, ::1] out):
    """Write the columns of every source into ``out``; the lock is released meanwhile.

    Args:
        features: ``(L, D)``, NaN = missing; categories as codes, 0 for none.
        sources: as :data:`listwright.ranking.relative.SOURCE` has them.
        out: ``(L, W)``; only the columns that the sources name are written.

    Raises:
        MemoryError: if there is none for four columns.
    """
    cdef Py_ssize_t length = features.shape[0], s
    cdef Item* items = <Item*>malloc(4 * sizeof(Item) * max(length, 1))
    if items == NULL:
        raise MemoryError()
    with nogil:
        for s in range(sources.shape[0]):
            if max(sources[s].count, sources[s].share, sources[s].distinct) >= 0:
                _write_category(features, &sources[s], out, items, items + length)
            else:
                _write_number(features, &sources[s], out, items, items + length)
    free(items)
