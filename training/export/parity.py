"""The parity check: an exported graph ranks as the trained module does, or is not sealed into a bundle."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import UNKNOWN_CODE, FeatureSchema
from listwright.ranking.golden import TIE_TOLERANCE
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import SecondStage, SrmStage
from listwright.training.data.shards.rows import Features

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-4
"""Largest |torch - ONNX| of a score (absolute, and relative above 1); 2.4e-6 is typical."""

ROUNDINGS, WIDEST = 40.0, 100.0
"""Multiple of the change of a score by one rounding of its inputs, which may exceed :data:`TOLERANCE`, and the largest
multiple of that. QILCM's graph counts a spread of some eight roundings as none, and enlarges others a thousand times.
"""


def check_parity(
    module: torch.nn.Module,
    reranker: Reranker,
    stage: SecondStage,
    rows: Features,
    *,
    longest: int,
    rng: np.random.Generator,
) -> tuple[int, ...]:
    """Compare the trained module with the serving code, on lists that are easy to get wrong.

    Lists of 1 and 2 candidates, of lengths around the cutoff, and of ``longest`` are drawn from real rows; each is also
    tried with constant features, with missing values, with unknown categories and in another order. The trained network
    is evaluated in float64, with its float32 weights.

    Args:
        module: Torch module that was exported, ``(C, E) -> (C,)`` or ``(C, K)``.
        reranker: Reranker over the exported files.
        stage: Stage of its manifest that the module belongs to; every specialist is compared.
        rows: Real feature rows to draw from, in schema order.
        longest: Length of the longest list in the data.

    Returns:
        The list lengths that passed.

    Raises:
        ScoringError: if a score differs by :data:`TOLERANCE` or more, and by more than rounding of the inputs explains;
            or the order does by more than a near tie.
    """
    exact = copy.deepcopy(module).eval().double()  # rounding of torch's own must not count as a difference
    lengths = list_lengths(stage, longest)
    specialists = range(len(stage.specialists)) if isinstance(stage, SrmStage) else [None]
    for length in lengths:
        for name, features in hard_lists(rows, length, reranker.schema, rng):
            for specialist in specialists:
                what = f"{stage.kind}, {name} list of {length}"
                _check_list(exact, reranker, stage, specialist, features, what)
    return lengths


def list_lengths(stage: SecondStage | None, longest: int) -> tuple[int, ...]:
    """Return lengths of lists that are easy to get wrong: 1, 2, those around the cutoff, and the longest one."""
    cutoff = None if stage is None else stage.cutoff
    around = () if cutoff is None else (max(1, cutoff - 1), cutoff, cutoff + 1)
    return tuple(sorted({1, 2, *around, longest}))


def hard_lists(
    rows: Features, length: int, schema: FeatureSchema, rng: np.random.Generator
) -> Iterator[tuple[str, Float[np.ndarray, "L D"]]]:
    """Yield lists of real rows by name: plain, in another order, constant, with missing values, of unknown categories.

    Args:
        rows: Real feature rows to draw from, in schema order.
        length: Number L of candidates.
        schema: Schema of the rows.
        rng: Generator that draws.
    """
    features = rows[rng.integers(0, len(rows), length)]
    yield "plain", features
    yield "permuted", features[rng.permutation(length)]
    yield "constant", np.repeat(features[:1], length, axis=0)
    numeric = list(schema.numeric)
    missing = features.copy()
    holes = rng.random((length, len(numeric))) < 0.3
    missing[:, numeric] = np.where(holes, np.nan, missing[:, numeric])
    yield "holey", missing
    if schema.categorical:
        unknown = features.copy()
        unknown[:, list(schema.categorical)] = UNKNOWN_CODE
        yield "unknown-category", unknown


def _check_list(
    module: torch.nn.Module,
    reranker: Reranker,
    stage: SecondStage,
    specialist: int | None,
    features: Float[np.ndarray, "L D"],
    what: str,
) -> None:
    ranking = reranker.rerank(CandidateList(features), strategy=stage.kind, specialist=specialist)
    if ranking.reason is not None:
        if np.isnan(ranking.first_stage_scores).all():
            return  # a first-stage column with missing values cannot be ranked, and the reason says so
        raise ScoringError(f"parity, {what}: {ranking.reason}")
    import torch  # noqa: PLC0415 - takes seconds; lists that are easy to get wrong need none

    scored = np.flatnonzero(~np.isnan(ranking.scores))
    widened = features if reranker.relative is None or not stage.relative else reranker.relative.widened(features)
    inputs = widened[scored]
    if stage.first_stage_score:
        inputs = np.column_stack([inputs, ranking.first_stage_scores[scored].astype(np.float32)])
    with torch.inference_mode():
        outputs = module(torch.from_numpy(inputs.astype(np.float64))).numpy()
    expected = outputs if specialist is None else outputs[:, specialist]
    scale = np.maximum(1.0, np.abs(expected))
    worst, limit, tie = float((np.abs(expected - ranking.scores[scored]) / scale).max()), TOLERANCE, TIE_TOLERANCE
    if not worst < limit:
        numeric = np.setdiff1d(np.arange(inputs.shape[1]), reranker.schema.categorical)
        limit = tie = min(
            max(TOLERANCE, ROUNDINGS * _sensitivity(module, specialist, inputs, numeric)), WIDEST * TOLERANCE
        )
    if not worst < limit:
        raise ScoringError(f"parity, {what}: exported and trained scores differ by {worst:.2g} (limit {limit:.2g})")
    in_order = np.empty(len(features))
    in_order[scored] = expected
    ranked = in_order[ranking.order[: len(scored)]]
    if (np.diff(ranked) > tie * scale.max()).any():
        raise ScoringError(f"parity, {what}: exported and trained scores give different orders")


def _sensitivity(
    module: torch.nn.Module, specialist: int | None, inputs: Float[np.ndarray, "C E"], numeric: Int[np.ndarray, " N"]
) -> float:
    """Return how much a score changes, relative above 1, where every number is rounded by one unit of float32."""
    import torch  # noqa: PLC0415 - as above

    rng, most = np.random.default_rng(0), 0.0
    rounded = inputs.astype(np.float64)
    with torch.inference_mode():
        exact = module(torch.from_numpy(rounded.copy()))
        for _ in range(8):
            signs = rng.choice((-1.0, 1.0), (len(inputs), len(numeric)))
            rounded[:, numeric] = inputs[:, numeric] * (1.0 + np.finfo(np.float32).eps * signs)
            change = (module(torch.from_numpy(rounded.copy())) - exact).abs() / exact.abs().clamp(min=1.0)
            most = max(most, float((change if specialist is None else change[:, specialist]).max()))
    return most
