"""Which trees of a forest go in step, and what each of their splits does to the rows: for ``lockstep.h``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from listwright.ranking.compiled.lightgbm_trees import Forest

ABREAST = 4
"""Trees that go in step; as in ``ranking/compiled/lockstep.h``."""

MOST_LEAVES = 64
"""Of a tree that goes in step. It passes all splits, a tree that is walked through only those on a row's way."""

SPLIT = np.dtype([("threshold", "f4"), ("column", "i4"), ("at", "i4"), ("step", "i4")])
GROUP = np.dtype([("steps", "i4"), ("starts", "i4", ABREAST)])

_INERT = (np.inf, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who goes in step and who is walked through.

    Args:
        groups: ``(G,)`` of :data:`GROUP`: how many splits, and the place of each tree's leftmost leaf.
        splits: ``(S, 4)`` of :data:`SPLIT`, group after group, parents before children; ``at`` is the
            place of the leftmost leaf below, from which ``step`` leads to that of the right side.
        walked: ``(W,)`` numbers of the other trees.
        turns: ``(T,)`` when each tree has its turn: four a group, and then those that are walked through.
    """

    groups: np.ndarray
    splits: np.ndarray
    walked: Int[np.ndarray, " W"]
    turns: Int[np.ndarray, " T"]


def schedule(forest: Forest) -> Schedule:
    """Trees of plain thresholds and at most :data:`MOST_LEAVES` leaves go in step, with others of about their size."""
    ends = np.append(forest.trees["root"][1:], len(forest.nodes))
    small = (ends - forest.trees["root"] < 2 * MOST_LEAVES) & (forest.trees["categorical"] == 0)
    chosen = {
        int(tree): _in_step(forest.nodes[forest.trees["root"][tree] : ends[tree]].tolist())
        for tree in np.flatnonzero(small)
    }
    order = sorted(chosen, key=lambda tree: len(chosen[tree][1]))
    groups, splits = [], []
    for first in range(0, len(order), ABREAST):
        members = order[first : first + ABREAST]
        missing = ABREAST - len(members)
        starts, ways = zip(*(chosen[tree] for tree in members), *[(0, [])] * missing, strict=True)
        steps = max(len(way) for way in ways)
        groups.append((steps, starts))
        padded = [way + [_INERT] * (steps - len(way)) for way in ways]
        splits += [list(step) for step in zip(*padded, strict=True)]
    walked = np.flatnonzero(~small).astype(np.int32)
    turns = np.empty(len(small), dtype=np.int32)
    turns[order] = np.arange(len(order))
    turns[walked] = len(groups) * ABREAST + np.arange(len(walked))
    return Schedule(np.array(groups, dtype=GROUP), np.array(splits, dtype=SPLIT).reshape(-1, ABREAST), walked, turns)


def _in_step(nodes: list[tuple[float, int, int]]) -> tuple[int, list[tuple[float, int, int, int]]]:
    """The place of a tree's leftmost leaf, and its splits."""
    leftmost = list(range(len(nodes)))
    for place in reversed(range(len(nodes))):
        leftmost[place] = leftmost[nodes[place][2]]  # children stand behind their parents; a leaf is its own child
    splits, waiting = [], [0]
    while waiting:
        place = waiting.pop()
        threshold, column, child = nodes[place]
        if child != place:
            splits.append((threshold, column, leftmost[place], leftmost[child + 1] - leftmost[place]))
            waiting += [child + 1, child]
    return leftmost[0], splits
