"""Training lists of a network: the first stage's top C, padded into batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from listwright.ranking.order import best, rank_by_score
from listwright.training.data.dataset import Dataset
from listwright.training.data.shards.rows import Features, Rows, take_rows, with_column
from listwright.training.recipe.model import DcmSpec, DlcmSpec, NetworkSpec

BUCKETS = 8
"""Batches whose lists are sorted by length together: enough to save padding, few enough to stay random."""

LARGE = 2500
"""Padded candidates from which a batch is worth more than one thread, by ``python -m benchmarks.speed.epoch``."""


class Batch(NamedTuple):
    """Padded lists: ``features (B, L, E)``, ``labels (B, L)``, ``mask (B, L)`` with True = real candidate.

    ``weights (B, L)`` of the candidates and ``gains`` are those of the data, None where these have none.
    """

    features: Tensor
    labels: Tensor
    mask: Tensor
    weights: Tensor | None = None
    gains: tuple[float, ...] | None = None


class Lists:
    """The candidates that the second stage scores, as tensors on one device.

    Args:
        data: N queries under the bundle's schema.
        scores: ``(R,)`` first-stage scores.
        cutoff: C, how many of the first stage's best are kept of each list (:func:`listwright.ranking.order.best`), in
            input order; which of candidates that are equal in everything, chance decides, always the same way.
        append_score: Whether the score becomes the last feature column.
        device: Torch device of the tensors.
        shuffled: Whether the candidates of each list stand in a random order, always the same, and not in input order.

    Attributes:
        rows: ``(R',)`` row of ``data`` behind each kept candidate.
        offsets: ``(N + 1,)`` query n owns kept candidates ``offsets[n] : offsets[n + 1]``.
        matrix: ``(R', E)`` raw features, as the exported graph will see them; rows on disk are read batch by batch.
    """

    def __init__(
        self,
        data: Dataset,
        scores: Float[np.ndarray, " R"],
        *,
        cutoff: int,
        append_score: bool,
        device: str = "cpu",
        shuffled: bool = False,
    ) -> None:
        rows_of_lists = _rows_within_cutoff(data, scores, cutoff)
        if shuffled:
            rng = np.random.default_rng(0)
            rows_of_lists = [rng.permutation(rows) for rows in rows_of_lists]
        self.rows: Int[np.ndarray, " S"] = np.concatenate(rows_of_lists)
        self._first_rows = data.offsets[:-1]
        self.offsets: Int[np.ndarray, " O"] = np.concatenate([[0], np.cumsum([len(rows) for rows in rows_of_lists])])
        matrix = take_rows(data.features, self.rows)
        self.matrix: Features = with_column(matrix, scores[self.rows]) if append_score else matrix
        self._features = None if isinstance(self.matrix, Rows) else torch.from_numpy(self.matrix).to(device)
        self._labels = torch.from_numpy(data.labels[self.rows].astype(np.int64)).to(device)
        self._gains, self._weights = data.gains, None
        if data.weights is not None:
            self._weights = torch.from_numpy(data.weights[self.rows].astype(np.float32)).to(device)
        self._starts = torch.from_numpy(self.offsets[:-1]).to(device)
        self._lengths = torch.from_numpy(np.diff(self.offsets)).to(device)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def mean_length(self) -> float:
        """Mean list length after the cutoff."""
        return len(self.rows) / len(self)

    def candidates(self, n: int) -> Int[np.ndarray, " C"]:
        """Return the numbers within query ``n`` of its candidates within the cutoff, in the order of the rows."""
        rows: Int[np.ndarray, " C"] = self.rows[self.offsets[n] : self.offsets[n + 1]] - self._first_rows[n]
        return rows

    def inputs(self, n: int) -> Float[np.ndarray, "C E"]:
        """Return the raw input rows of query ``n``."""
        inputs: Float[np.ndarray, "C E"] = self.matrix[self.offsets[n] : self.offsets[n + 1]]
        return inputs

    def share(self, queries: Int[np.ndarray, " M"]) -> Lists:
        """Return some of the lists, for a worker to train on, without their row numbers in the data."""
        at = np.concatenate([np.arange(self.offsets[n], self.offsets[n + 1]) for n in queries])
        part = copy(self)
        part.offsets = np.concatenate([[0], np.cumsum(np.diff(self.offsets)[queries])])
        part.rows, part.matrix = self.rows[at], self.matrix[at]
        part._first_rows = self._first_rows[queries]
        part._features, part._labels = torch.from_numpy(part.matrix), self._labels[at]
        part._weights = None if self._weights is None else self._weights[at]
        part._starts = torch.from_numpy(part.offsets[:-1]).to(self._starts.device)
        part._lengths = self._lengths[queries]
        return part.on("cpu")

    def on(self, device: str) -> Lists:
        """Return the same lists with their tensors on a device."""
        moved = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(device))
        return moved

    def batch(self, queries: Int[np.ndarray, " B"]) -> Batch:
        """Return some queries, padded to the longest of them; padding repeats real rows and means nothing."""
        picked = torch.from_numpy(np.asarray(queries)).to(self._starts.device)
        lengths = self._lengths[picked]
        steps = torch.arange(int(lengths.max()), device=lengths.device)
        mask = steps < lengths[:, None]
        places = torch.where(mask, steps, 0)
        index = self._starts[picked][:, None] + places
        weights = None if self._weights is None else self._weights[index]
        features = self._read(queries, lengths, places) if self._features is None else self._features[index]
        return Batch(features, self._labels[index], mask, weights, self._gains)

    def _read(self, queries: Int[np.ndarray, " B"], lengths: Tensor, places: Tensor) -> Tensor:
        """Read ``(B, L, E)`` features from disk."""
        row_numbers = [np.arange(self.offsets[n], self.offsets[n + 1]) for n in queries]
        rows = torch.from_numpy(self.matrix[np.concatenate(row_numbers)]).to(lengths.device)
        starts = lengths.cumsum(0) - lengths
        return rows[starts[:, None] + places]

    def batches(self, size: int, rng: np.random.Generator | None = None, *, similar: bool = True) -> Iterator[Batch]:
        """Yield all queries once, ``size`` lists at a time, the last batch smaller.

        Args:
            size: Number of lists in a batch.
            rng: Generator that shuffles queries and batches; None keeps the data's order.
            similar: Whether shuffled lists of similar length come together.

        Meanwhile torch has one thread for a batch below :data:`LARGE`: waiting for others would take longer.
        """
        most = torch.get_num_threads()
        try:
            for queries in self._plan(size, rng, BUCKETS if similar else 1):
                batch = self.batch(queries)
                torch.set_num_threads(1 if batch.mask.numel() < LARGE else most)
                yield batch
        finally:
            torch.set_num_threads(most)

    def _plan(self, size: int, rng: np.random.Generator | None, buckets: int) -> list[Int[np.ndarray, " B"]]:
        order = np.arange(len(self))
        if rng is None:
            return [order[start : start + size] for start in range(0, len(order), size)]
        rng.shuffle(order)
        lengths = np.diff(self.offsets)
        batches = []
        for start in range(0, len(order), size * buckets):
            bucket = order[start : start + size * buckets]
            bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
            batches += [bucket[first : first + size] for first in range(0, len(bucket), size)]
        return [batches[b] for b in rng.permutation(len(batches))]


def lists_for(spec: NetworkSpec, data: Dataset, scores: Float[np.ndarray, " R"], *, device: str = "cpu") -> Lists:
    """Return the lists as a network gets them in training and evaluation.

    Convention: one that reads candidates by the first stage's score gets them in a random order. Among equal scores it
    reads them as they stand, and row order may know the labels.
    """
    shuffled = isinstance(spec, DlcmSpec | DcmSpec) and spec.order == "first_stage"
    return Lists(
        data,
        scores,
        cutoff=spec.cutoff,
        append_score=spec.first_stage_score,
        device=device,
        shuffled=shuffled,
    )


def _rows_within_cutoff(data: Dataset, scores: Float[np.ndarray, " R"], cutoff: int) -> list[Int[np.ndarray, " C"]]:
    """Return the rows of each query that reach the second stage, in input order."""
    rows_of_lists = [np.arange(first, last) for first, last in pairwise(data.offsets.tolist())]
    if data.lengths.max() <= cutoff:
        return rows_of_lists
    rng = np.random.default_rng(0)
    for n, (features, _) in enumerate(data.lists()):
        if len(features) > cutoff:
            shuffled = rng.permutation(len(features))  # of equals, row order must not choose: it may know the labels
            of_list, rows = scores[data.slice(n)][shuffled], features[shuffled]
            rows_of_lists[n] = np.sort(rows_of_lists[n][shuffled[best(cutoff, rank_by_score(of_list), of_list, rows)]])
    return rows_of_lists
