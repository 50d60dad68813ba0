"""Golden requests: lists and their answers, stored in the bundle and replayed at load as self-check and warm-up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float, Int
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from listwright.ranking.aggregates import TOP
from listwright.ranking.candidates import CandidateList, RankedList, Ranking
from listwright.ranking.errors import BundleError, ListwrightError
from listwright.ranking.manifest import MOST_VALUES
from listwright.ranking.order import rank_by_score, tied_after
from listwright.ranking.plain_file import check_values, from_json
from listwright.ranking.reranker import Reranker

SCORE_TOLERANCE = 1e-4
"""Largest difference of a score that still counts as the same computation (absolute, and relative above 1)."""

ROUTER_TOLERANCE = 0.05
"""Largest difference of a router's probability."""

TIE_TOLERANCE = 1e-5
"""Candidates whose scores are closer than this may swap (absolute, and relative above 1)."""


MAX_FILE_BYTES, MAX_LINES, MAX_FILE_VALUES = 64 * 2**20, 1000, 8_000_000
"""Bytes, lists and values of a golden file; one of 30 features has 20,000 bytes, one of 10,000 millions of values."""

Numbers = Annotated[list[float | None], Field(fail_fast=True)]


class GoldenList(BaseModel):
    """One list and its answer; ``None`` stands for NaN.

    Args:
        strategy, specialist: Options of the request; None leaves the specialist to the bundle, and ``srm`` then
            means the mixture under its own weights.
        decided: Specialist that answered.
        probabilities: ``(K,)`` probabilities by the router, where it ran. A last digit that differs between machines
            may turn a tree of it and hence a decision: so these are compared loosely, and scores under the decision of
            the record.
        probability: ``(L,)`` probabilities of being relevant; None where they are not compared.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    features: Annotated[list[Numbers], Field(min_length=1, fail_fast=True)]
    strategy: str = "auto"
    specialist: int | None = None
    decided: int | None = None
    probabilities: Annotated[list[float], Field(fail_fast=True)] | None = None
    first_stage_scores: Numbers
    scores: Numbers
    order: Annotated[list[int], Field(fail_fast=True)]
    probability: Annotated[Numbers | None, Field(exclude_if=lambda numbers: numbers is None)] = None


def record(reranker: Reranker, lists: Iterable[Float[np.ndarray, "L D"]]) -> bytes:
    """Rank lists and return the golden file: one JSON line per list, and one per specialist.

    A second stage that ``auto`` does not mean answers every list, too.

    Raises:
        ListwrightError: if a list cannot be ranked without degrading: such an answer must not become the truth.
    """
    lists = list(lists)
    srm = reranker.manifest.srm
    requests: list[tuple[Float[np.ndarray, "L D"], str, int | None]] = [(features, "auto", None) for features in lists]
    for stage in reranker.manifest.second_stages:
        if stage.kind != reranker.manifest.strategy:  # "auto" would not ask it
            requests += [(features, stage.kind, None) for features in lists]
    if srm is not None:  # the longest lists tell most
        requests += [(lists[-1 - k % len(lists)], "auto", k) for k in range(len(srm.specialists))]
        requests.append((lists[-1], "srm", None))
    lines = []
    for features, strategy, specialist in requests:
        candidates, routing = CandidateList(features), strategy == "auto"
        rerank = partial(reranker.rerank, strategy=strategy, specialist=specialist, routing=routing)
        ranking = rerank(candidates, probability=reranker.manifest.probability is not None)
        uses_router = routing and specialist is None and reranker.router is not None
        estimated = reranker.rerank(candidates, strategy="srm") if uses_router else ranking
        fault = _fault(ranking) or _fault(estimated)
        if fault is not None:
            raise ListwrightError(f"the bundle cannot rank a golden list: {fault}")
        probabilities = estimated.route.probabilities
        golden = GoldenList(
            features=[[_number(v) for v in row] for row in features],
            strategy=strategy,
            specialist=specialist,
            decided=ranking.route.specialist,
            probabilities=None if probabilities is None else probabilities.tolist(),
            first_stage_scores=[_number(v) for v in ranking.first_stage_scores],
            scores=[_number(v) for v in ranking.scores],
            order=[int(i) for i in ranking.order],
            probability=None if ranking.probability is None else ranking.probability.tolist(),
        )
        lines.append(json.dumps(golden.model_dump(), separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


def _fault(ranking: Ranking) -> str | None:
    """Return why the bundle did not answer as it should; None if it did."""
    if ranking.route.faults:
        return str(ranking.route.faults[0])
    return ranking.reason


def read(text: bytes, path: Path) -> list[GoldenList]:
    """Parse a golden file.

    Raises:
        BundleError: if it is too large, or naming the line that is not a golden list.
    """
    if len(text) > MAX_FILE_BYTES or text.count(b"\n") > MAX_LINES:
        raise BundleError(path, f"has more than {MAX_FILE_BYTES} bytes or {MAX_LINES} lines, which are the limits")
    try:
        check_values(text, MAX_FILE_VALUES)
    except ValueError as error:
        raise BundleError(path, str(error)) from error
    lists = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            lists.append(GoldenList.model_validate(from_json(line, MOST_VALUES)))
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise BundleError(path, f"line {number}: {fault['msg']}") from error
        except ValueError as error:
            raise BundleError(path, f"line {number}: not JSON ({error})") from error
    if not lists:
        raise BundleError(path, "holds no golden lists, so the bundle cannot check itself")
    return lists


def replay(reranker: Reranker, lists: list[GoldenList], path: Path) -> None:
    """Rank every golden list again and compare.

    Raises:
        BundleError: naming the first list whose answer differs, and by how much.
    """
    for number, golden in enumerate(lists, start=1):
        try:
            candidates = CandidateList(as_array(golden.features))
            rerank = partial(reranker.rerank, strategy=golden.strategy, specialist=golden.decided, routing=False)
            ranking = rerank(candidates, probability=golden.probability is not None)
            positions = _tied_candidates(golden, ranking)
            expected = golden if positions is None else _restrict(golden, positions)
            if positions is not None:
                ranking = rerank(CandidateList(as_array(expected.features)))
            # "auto" does not ask a router that always abstains, "srm" does
            estimated = None if expected.probabilities is None else reranker.rerank(candidates, strategy="srm")
        except ListwrightError as error:
            raise BundleError(path, f"line {number}: {error}") from error
        fault = _fault(ranking) or difference(expected, ranking)
        if fault is None and estimated is not None:
            fault = _fault(estimated) or _estimate_difference(expected, estimated)
        if fault is not None:
            raise BundleError(path, f"line {number}: {fault}: this machine does not compute what the trainer computed")


def _tied_candidates(golden: GoldenList, ranking: Ranking) -> Int[np.ndarray, " C"] | None:
    """Return the rescored candidates of the record, if others with the same first-stage score are now; else None."""
    # older bundles were recorded while input order chose among equal scores at the cutoff
    then, now = np.isfinite(np.array(golden.scores, dtype=np.float64)), np.isfinite(ranking.scores)
    if then.shape != now.shape or then.sum() != now.sum() or (then == now).all():
        return None
    return np.flatnonzero(then) if np.ptp(ranking.first_stage_scores[then != now]) == 0 else None


def _restrict(golden: GoldenList, positions: Int[np.ndarray, " C"]) -> GoldenList:
    """Restrict an answer to some candidates; without what was of the whole list: the router's, and probabilities."""
    place = {int(i): n for n, i in enumerate(positions)}
    whole = {name: getattr(golden, name) for name in ("features", "first_stage_scores", "scores")}
    parts: dict[str, object] = {name: [values[i] for i in positions] for name, values in whole.items()}
    order = [place[i] for i in golden.order if i in place]
    return golden.model_copy(update=parts | {"order": order, "probabilities": None, "probability": None})


def difference(golden: GoldenList, ranking: Ranking | RankedList) -> str | None:
    """Return how an answer differs from the recorded one, by more than machines do; None where it does not."""
    for name in ("first_stage_scores", "scores", "probability"):
        if (recorded := getattr(golden, name)) is None:
            continue
        expected = np.array(recorded, dtype=np.float64)
        actual = np.array(getattr(ranking, name), dtype=np.float64, ndmin=1)  # None is one NaN
        swapped = name == "probability" and actual.shape == expected.shape and ranking.order.tolist() != golden.order
        if not swapped and not same_scores(
            expected, actual
        ):  # swapped: near ties, see below; probabilities follow them
            return f"{name} are {_format_scores(actual)}, expected {_format_scores(expected)}"
    expected_order = np.array(golden.order)
    if sorted(golden.order) != list(range(len(ranking.order))) or not same_order(ranking, expected_order):
        return f"order is {ranking.order[:10].tolist()}, expected {golden.order[:10]}"
    return None


def _estimate_difference(golden: GoldenList, ranking: Ranking) -> str | None:
    expected, actual, first = np.array(golden.probabilities), ranking.route.probabilities, ranking.first_stage_scores
    if (
        actual is None
        or actual.shape != expected.shape
        or (
            np.abs(actual - expected).max() > ROUTER_TOLERANCE
            and not tied_after(TOP, rank_by_score(first), first)  # see _tied_candidates
        )
    ):
        return f"the router's probabilities are {actual}, expected {expected}"
    return None


def same_scores(expected: Float[np.ndarray, " L"], actual: Float[np.ndarray, " M"]) -> bool:
    """Return whether two score vectors agree within :data:`SCORE_TOLERANCE`; NaN equals NaN only."""
    return expected.shape == actual.shape and bool(
        np.allclose(actual, expected, rtol=SCORE_TOLERANCE, atol=SCORE_TOLERANCE, equal_nan=True)
    )


def same_order(ranking: Ranking | RankedList, expected: Int[np.ndarray, " L"]) -> bool:
    """Return whether the ranking is in the expected order, but for swaps of scores closer than :data:`TIE_TOLERANCE`.

    Candidates that the second stage scored are compared by its scores, the others by the first stage's.
    """
    rescored = np.isfinite(ranking.scores)
    score = np.where(rescored, ranking.scores, ranking.first_stage_scores)
    differs = ranking.order != expected
    actual, required = ranking.order[differs], expected[differs]
    same_part = (rescored[actual] == rescored[required]).all()
    ties = np.isclose(score[actual], score[required], rtol=TIE_TOLERANCE, atol=TIE_TOLERANCE)
    return bool(same_part and ties.all())


def _number(value: float | np.floating[Any]) -> float | None:
    return None if np.isnan(value) else float(value)


def as_array(rows: list[list[float | None]]) -> Float[np.ndarray, "L D"]:
    """Return ``(L, D)`` features of a golden list; ListwrightError if its rows differ in width."""
    if len({len(row) for row in rows}) != 1:
        raise ListwrightError("rows of a golden list differ in width")
    return np.array(rows, dtype=np.float64)  # a list of candidates refuses what float32 cannot hold


def _format_scores(scores: Float[np.ndarray, " L"]) -> str:
    return np.array2string(scores[:5], precision=6, separator=", ") + (" …" if len(scores) > 5 else "")
