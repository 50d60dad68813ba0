"""Training lists of EM: padded, and beyond a block of rows read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from listwright.training.losses.exact_plackett_luce import LabelGroups, Likelihood, evaluate, log_likelihood_of_top

BLOCK_ROWS = 2**17
"""Rows of a block, besides the rest of its last list; the same wherever the rows are, and so are all sums."""


@dataclass(frozen=True, slots=True)
class PaddedLists:
    """N informative training lists.

    Args:
        x: ``(R, P)`` float64 dense inputs, rows of one list together.
        labels: ``(R,)`` float64.
        mask: ``(N, L)`` True = real candidate; its True places, row by row, are the rows of ``x``.
        groups: Label groups of the padded lists.
        top: m of the top-m event; None for the full event.
    """

    x: Float[Tensor, "R P"]
    labels: Float[Tensor, " R"]
    mask: Bool[Tensor, "N L"]
    groups: LabelGroups
    top: int | None = None

    @classmethod
    def of(
        cls,
        x: Float[Tensor, "R P"],
        labels: Float[Tensor, " R"],
        lengths: Int[Tensor, " N"],
        *,
        top: int | None = None,
    ) -> PaddedLists:
        """Pad flat rows, given their labels and each list's number of rows."""
        mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
        padded = torch.zeros(mask.shape, dtype=labels.dtype).masked_scatter(mask, labels)
        return cls(x, labels, mask, LabelGroups.of(padded, mask), top)

    def __len__(self) -> int:
        return len(self.mask)

    @property
    def group_count(self) -> int:
        """Label groups of all lists."""
        return len(self.groups.sizes)

    def blocks(self) -> Iterator[tuple[slice, PaddedLists]]:
        """Yield the lists as a single block; see :meth:`BlockedLists.blocks`."""
        yield slice(0, len(self)), self

    def batch(self, picked: Int[Tensor, " M"]) -> PaddedLists:
        """Return some of the lists; see :meth:`BlockedLists.batch`."""
        return self.select(picked)

    def select(self, picked: Int[Tensor, " M"]) -> PaddedLists:
        """Return some of the lists, in the order given."""
        lengths = self.mask.sum(dim=1)
        starts = lengths.cumsum(0) - lengths
        is_real = torch.arange(self.mask.shape[1])[None, :] < lengths[picked, None]
        rows = (starts[picked, None] + torch.arange(self.mask.shape[1]))[is_real]
        return PaddedLists.of(self.x[rows], self.labels[rows], lengths[picked], top=self.top)

    def likelihood(self, scores: Float[Tensor, " R"]) -> Likelihood:
        """Return the likelihood of every list, and its gradient in the rows' scores, ``(N, L)``."""
        padded = torch.zeros(self.mask.shape, dtype=scores.dtype).masked_scatter(self.mask, scores)
        if self.top is None:
            return evaluate(padded, self.groups)
        padded.requires_grad_()
        labels = torch.zeros(self.mask.shape, dtype=scores.dtype).masked_scatter(self.mask, self.labels)
        with torch.enable_grad():
            value = log_likelihood_of_top(padded, labels, self.mask, top=self.top)
            (gradient,) = torch.autograd.grad(value.sum(), padded)
        return Likelihood(value.detach(), gradient)


class BlockedLists:
    """N lists, of which a block is padded at a time.

    Args:
        inputs: Function that returns the ``(M, P)`` float64 dense inputs of rows by their numbers.
        labels: ``(R,)`` float64 labels of all rows.
        starts, lengths: ``(N,)`` list n has rows ``starts[n] : starts[n] + lengths[n]``.
        top: m of the top-m event; None for the full event.
        held: Whether blocks stay in memory once they are made.
    """

    def __init__(
        self,
        inputs: Callable[[Int[Tensor, " M"]], Float[Tensor, "M P"]],
        labels: Float[Tensor, " R"],
        starts: Int[Tensor, " N"],
        lengths: Int[Tensor, " N"],
        *,
        top: int | None,
        held: bool,
    ) -> None:
        self._inputs, self._labels, self._starts, self._lengths = inputs, labels, starts, lengths
        self._top, self._held = top, held
        self._cache: dict[int, PaddedLists] = {}

    def __len__(self) -> int:
        return len(self._lengths)

    @cached_property
    def group_count(self) -> int:
        """Label groups of all lists."""
        return sum(block.group_count for _, block in self.blocks())

    def select(self, picked: Int[Tensor, " M"]) -> BlockedLists:
        """Return some of the lists, in the order given."""
        starts, lengths = self._starts[picked], self._lengths[picked]
        return BlockedLists(self._inputs, self._labels, starts, lengths, top=self._top, held=self._held)

    def batch(self, picked: Int[Tensor, " M"]) -> PaddedLists:
        """Return some of the lists, padded together."""
        lengths = self._lengths[picked]
        places = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        rows = self._starts[picked].repeat_interleave(lengths) + places
        return PaddedLists.of(self._inputs(rows), self._labels[rows], lengths, top=self._top)

    def padded_if_one_block(self) -> PaddedLists | BlockedLists:
        """Return the same lists, padded permanently if they are one block."""
        is_one_block = int(self._lengths.sum()) <= BLOCK_ROWS
        return self.batch(torch.arange(len(self))) if is_one_block else self

    def blocks(self) -> Iterator[tuple[slice, PaddedLists]]:
        """Yield all lists in order, a block at a time, with the slice of each."""
        first = 0
        ends = self._lengths.cumsum(0)
        while first < len(self):
            before = int(ends[first] - self._lengths[first])
            last = min(int(torch.searchsorted(ends, before + BLOCK_ROWS)) + 1, len(self))
            yield slice(first, last), self._block(first, last)
            first = last

    def _block(self, first: int, last: int) -> PaddedLists:
        if first in self._cache:
            return self._cache[first]
        block = self.batch(torch.arange(first, last))
        if self._held:
            self._cache[first] = block
        return block


TrainingLists = PaddedLists | BlockedLists
"""Training lists of EM."""
