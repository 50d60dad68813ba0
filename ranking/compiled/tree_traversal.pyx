# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Scores rows with a forest, sixteen rows side by side.

Through small trees they go in step (``lockstep.h``); through the others each walks its own way, and while one waits for
memory, the others compute. The arrays are those of :mod:`listwright.ranking.compiled.lightgbm_trees`, which has checked them, and of
:mod:`listwright.ranking.compiled.first_stage`: nothing is checked here.
"""

from libc.math cimport INFINITY, exp2, isnan
from libc.stdlib cimport free, malloc


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


cdef class Average:
    """The mean m over all trees of a row's leaf values, or ``2^(power m)``; trees of a row go side by side.

    Holds the arrays, as taking hold of each costs more than a few levels of a tree.

    Args:
        fills: ``(E,)`` what stands for a missing value.
        nodes: as of :func:`score`, of plain thresholds only.
        roots: ``(trees,)`` where each tree begins.
        leaves: of every node; of a leaf, its row of ``values``.
        values: ``(values, outputs)``.
        power: 0 for the mean itself.
    """

    cdef double power
    cdef const float[::1] fills
    cdef const Node[::1] nodes
    cdef const int[::1] roots
    cdef const unsigned int[::1] leaves
    cdef const float[:, ::1] values

    def __init__(self, fills, nodes, roots, leaves, values, double power):
        self.fills, self.nodes, self.roots, self.leaves, self.values = fills, nodes, roots, leaves, values
        self.power = power

    def score(self, const float[:, ::1] features, float[:, ::1] out):
        """Write what ``(rows, E)`` inputs give into ``out``, ``(rows, outputs)``; NaN = missing.

        Raises:
            MemoryError: if there is none for one row.
        """
        cdef Py_ssize_t width = self.fills.shape[0], outputs = out.shape[1], row, column
        cdef const float* values
        cdef const float* fills = &self.fills[0] if width else NULL
        cdef double* total = <double*>malloc(sizeof(double) * outputs + sizeof(float) * width)
        if total == NULL:
            raise MemoryError()
        cdef float* filled = <float*>(total + outputs)
        with nogil:
            for row in range(features.shape[0]):
                values = &features[row, 0] if width else NULL
                for column in range(width):
                    filled[column] = fills[column] if isnan(values[column]) else values[column]
                self._score_row(filled, total, &out[row, 0], outputs)
            free(total)

    cdef void _score_row(self, const float* filled, double* total, float* out, Py_ssize_t outputs) noexcept nogil:
        cdef Py_ssize_t count = self.roots.shape[0], start = 0, lanes, lane, k
        cdef unsigned int at[LANES]
        cdef unsigned int following, moving
        cdef Node node
        cdef const Node* nodes = &self.nodes[0]
        cdef const int* roots = &self.roots[0]
        cdef const float* values
        for k in range(outputs):
            total[k] = 0.0
        while start < count:
            lanes = min(LANES, count - start)
            for lane in range(lanes):
                at[lane] = 0
            moving = 1
            while moving:
                moving = 0
                for lane in range(lanes):
                    node = nodes[roots[start + lane] + at[lane]]
                    following = node.child + (filled[node.column] > node.threshold)
                    moving |= following ^ at[lane]
                    at[lane] = following
            for lane in range(lanes):
                values = &self.values[self.leaves[roots[start + lane] + at[lane]], 0]
                for k in range(outputs):
                    total[k] += values[k]
            start += LANES
        for k in range(outputs):
            total[k] /= count
            out[k] = <float>(exp2(self.power * total[k]) if self.power else total[k])
