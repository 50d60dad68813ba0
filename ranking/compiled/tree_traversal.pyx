# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Scores rows with a forest, sixteen rows side by side.

Through small trees they go in step (``lockstep.h``); through the others each walks its own way, and while one waits for
memory, the others compute. The arrays are those of :mod:`listwright.ranking.compiled.lightgbm_trees`, which has checked them, and of
:mod:`listwright.ranking.compiled.first_stage`: nothing is checked here.
"""

from libc.math cimport INFINITY, isnan
from libc.stdlib cimport free


cdef extern from "stdlib.h" nogil:
    void* aligned_alloc(size_t alignment, size_t size)


cdef extern from "lockstep.h" nogil:
    enum:
        LANES
        ABREAST
    ctypedef struct Split:
        float threshold
        int column
        int at
        int step
    ctypedef void (*InStep)(const float* tile, const Split* splits, int steps, const int* starts, int* leaves)
    InStep in_step(bint fastest)


cdef enum:
    LINE = 64  # bytes, on which registers of any width may lie
    BLOCK = 8  # levels between two looks at whether every lane has reached its leaf
    CATEGORICAL = 0x8000


cdef enum:
    NAN_RIGHT
    NAN_LEFT
    NAN_ZERO
    ZERO_RIGHT
    ZERO_LEFT
    CATEGORY


cdef float ZERO = 1e-35


cdef packed struct Node:
    float threshold
    unsigned short column
    unsigned short child


cdef packed struct Tree:
    int root
    int depth
    int categorical


cdef struct Group:
    int steps
    int starts[4]


cdef packed struct Column:
    int feature
    int missing


cdef inline float _encoded(float value, int missing) noexcept nogil:
    """A value such that ``encoded > threshold`` is LightGBM's "goes right", missing values included."""
    if -ZERO <= value <= ZERO:
        value = 0  # as LightGBM reads its input
    if missing == NAN_RIGHT:
        return INFINITY if isnan(value) else value
    if missing == NAN_LEFT:
        return -INFINITY if isnan(value) else value
    if missing == NAN_ZERO:
        return <float>0.0 if isnan(value) else value
    if missing == ZERO_RIGHT:
        return INFINITY if isnan(value) or value == 0 else value
    if missing == ZERO_LEFT:
        return -INFINITY if isnan(value) or value == 0 else value
    if value > -1:  # of a category, of which LightGBM drops the fraction: -0.5 is category 0
        return value if value > 0 else <float>0.0
    return -1.0  # no category, as is NaN


cdef inline bint _right(Node node, const float* tile, const unsigned int* sets, int lane) noexcept nogil:
    """Whether a lane goes right at a node of either kind: past the threshold, or not in the set."""
    cdef float value = tile[(node.column & ~CATEGORICAL) * LANES + lane]
    if not node.column & CATEGORICAL:
        return value > node.threshold
    cdef const unsigned int* words = sets + <unsigned int>node.threshold
    if value < 0 or value >= <float>words[0] * 32:
        return True
    cdef unsigned int category = <unsigned int>value
    return not (words[1 + (category >> 5)] >> (category & 31)) & 1


cdef void _descend(
    const Node* tree, const float* tile, const unsigned int* sets, int depth, bint categorical, int* leaves
) noexcept nogil:
    """From the root to every lane's leaf. A leaf's threshold is infinite and its child itself: it is never left."""
    cdef int level = 0, lane
    cdef unsigned int at[LANES]  # not the caller's array, so that it may live in registers
    cdef unsigned int moving
    cdef Node node
    for lane in range(LANES):
        at[lane] = 0
    while level < depth:
        for level in range(level, min(level + BLOCK, depth)):
            if categorical:
                for lane in range(LANES):
                    node = tree[at[lane]]
                    at[lane] = node.child + _right(node, tile, sets, lane)
            else:
                for lane in range(LANES):
                    node = tree[at[lane]]
                    at[lane] = node.child + (tile[node.column * LANES + lane] > node.threshold)
        level += 1
        moving = 0
        for lane in range(LANES):
            moving |= tree[at[lane]].child ^ at[lane]
        if not moving:
            break
    for lane in range(LANES):
        leaves[lane] = at[lane]


def score(
    const float[:, ::1] features,
    const Column[::1] columns,
    const Node[::1] nodes,
    const Tree[::1] trees,
    const unsigned int[::1] sets,
    const double[::1] values,
    const Group[::1] groups,
    const Split[:, ::1] splits,
    const int[::1] walked,
    const int[::1] turns,
    double[::1] scores,
    bint fastest=True,
):
    """Write the sum of every row's leaf values, tree by tree, into ``scores``; the lock is released meanwhile.

    Args:
        features: ``(L, D)``.
        columns: ``(E,)`` what the nodes compare: a feature, and what becomes of its missing values.
        nodes: of all trees, one after the other, siblings side by side.
        trees: where each one begins.
        sets: the sets of categorical nodes.
        values: of all nodes; only those of leaves are read.
        groups, splits, walked, turns: as a :class:`listwright.ranking.compiled.first_stage.Schedule` has them.
        scores: ``(L,)``.
        fastest: as this processor can, or else as every processor can: the same to the last bit.

    Raises:
        MemoryError: if there is none for sixteen rows.
    """
    cdef InStep through = in_step(fastest)
    cdef Py_ssize_t rows = features.shape[0], width = columns.shape[0], count = trees.shape[0]
    cdef Py_ssize_t start, row, column, t
    cdef int lane
    cdef double total[LANES]
    cdef Tree tree
    cdef float* tile = <float*>aligned_alloc(LINE, sizeof(float) * LANES * max(width, 1))
    cdef Py_ssize_t in_groups = groups.shape[0] * ABREAST
    cdef int* leaves = <int*>aligned_alloc(LINE, sizeof(int) * LANES * max(in_groups + walked.shape[0], 1))
    cdef const Split* first_split = &splits[0, 0] if splits.shape[0] else NULL
    cdef const Split* split
    cdef int* at
    if tile == NULL or leaves == NULL:
        free(tile)
        free(leaves)
        raise MemoryError()
    with nogil:
        start = 0
        while start < rows:
            for lane in range(LANES):
                row = min(start + lane, rows - 1)
                total[lane] = 0.0
                for column in range(width):
                    tile[column * LANES + lane] = _encoded(
                        features[row, columns[column].feature], columns[column].missing
                    )
            split = first_split
            for t in range(groups.shape[0]):
                through(tile, split, groups[t].steps, groups[t].starts, leaves + t * ABREAST * LANES)
                split += groups[t].steps * ABREAST
            for t in range(walked.shape[0]):
                tree = trees[walked[t]]
                at = leaves + (in_groups + t) * LANES
                _descend(&nodes[tree.root], tile, &sets[0], tree.depth, tree.categorical, at)
            for t in range(count):
                at = leaves + turns[t] * LANES
                for lane in range(LANES):
                    total[lane] += values[trees[t].root + at[lane]]
            for lane in range(min(LANES, rows - start)):
                scores[start + lane] = total[lane]
            start += LANES
        free(tile)
        free(leaves)
