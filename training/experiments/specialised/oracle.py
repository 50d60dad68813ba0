"""Suite ``oracle``: specialists behind a noisy oracle (Jagerman, Oosterhuis, de Rijke, 2017, Figure 2).

An oracle of accuracy a picks a query's best specialist with probability a and a random one otherwise. Its expected
NDCG is ``a max_k + (1 - a) mean_k`` per query: exact, nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float

from listwright.ranking.errors import RecipeError
from listwright.ranking.scorers import OnnxScorer
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.intervals import interval, resampled_means
from listwright.training.export.onnx import to_onnx
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart
from listwright.training.progress import NO_TASK, Task
from listwright.training.recipe.config import LambdaMart, Recipe, Srm
from listwright.training.second_stage.loop import query_ndcg
from listwright.training.specialists.srm import fit_srm, lists_of

ACCURACIES = np.linspace(0.0, 1.0, 101)


def measure(
    recipe: Recipe,
    splits: Splits,
    counts: Sequence[int],
    state: Path,
    *,
    ndcg_at: int,
    task: Task = NO_TASK,
) -> pl.DataFrame:
    """NDCG of every test query under LambdaMART and under every specialist of every K.

    Args:
        recipe: its first stage, and its specialists (or their defaults) but for K.
        splits: of the recipe's data.
        counts: every K, 1 among them.
        state: folder for checkpoints.
        ndcg_at: cutoff of the NDCG; a query without a relevant candidate counts 0.
        task: told what is being done.

    Returns:
        One row per query and ranker: ``qid``, ``ranker``, ``specialists`` K, ``specialist`` k, ``ndcg``.
    """
    if not isinstance(recipe.first_stage, LambdaMart):
        raise RecipeError(f"recipe {recipe.name!r} brings its own first stage; the oracle suite fits LambdaMART itself")
    unit = f"seed {recipe.seed}, fold {recipe.fold}"
    task.note(f"{unit}: LambdaMART")
    first = first_stage.fit(recipe.first_stage, splits, seed=recipe.seed, state=state)
    assert isinstance(first.model, str)
    test, test_scores = splits.test, lambdamart.scores_of(first.model, splits.test)
    frames = [_rows(test.qids, "lambdamart", 0, 0, lambdamart.query_ndcg(test, test_scores, ndcg_at))]
    for count in counts:
        spec = (recipe.specialists or Srm()).model_copy(update={"specialists": count})
        task.note(f"{unit}: SRM, K = {count}")
        checkpoint = state / f"srm_{count}.pt"
        fitted = fit_srm(spec, splits.train, first.train_scores, seed=recipe.seed, checkpoint=checkpoint)
        lists = lists_of(spec, test, test_scores)
        width = lists.matrix.shape[1]
        served = OnnxScorer(to_onnx(fitted.module, width), width, columns=count)
        by_specialists = [served.score(lists.inputs(n)) for n in range(len(test))]
        for k in range(count):
            values = query_ndcg([found[:, k] for found in by_specialists], lists, test, test_scores, ndcg_at)
            frames.append(_rows(test.qids, "srm", count, k, values))
    return pl.concat(frames)


def _rows(qids: Sequence[str], ranker: str, count: int, k: int, values: Float[np.ndarray, " N"]) -> pl.DataFrame:
    return pl.DataFrame({"qid": list(qids), "ndcg": values}).with_columns(
        pl.lit(ranker).alias("ranker"), pl.lit(count).alias("specialists"), pl.lit(k).alias("specialist")
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """Expected NDCG against the oracle's accuracy, for one K.

    Args:
        specialists: K.
        mean, low, high: ``(A,)`` at :data:`ACCURACIES`, with the 95 % interval over queries.
        oracle, average: NDCG at a = 1 and at a = 0.
        break_even: accuracy at which the single ranker is reached, with its interval; None where K = 1 or the
            specialists never differ.
        beats_single, beats_lambdamart: smallest accuracy at which the paired interval of the gain lies above 0; None
            where there is none.
    """

    specialists: int
    mean: Float[np.ndarray, " A"]
    low: Float[np.ndarray, " A"]
    high: Float[np.ndarray, " A"]
    oracle: float
    average: float
    break_even: tuple[float, float, float] | None
    beats_single: float | None
    beats_lambdamart: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """What the suite found.

    Args:
        queries, seeds: how many.
        single, lambdamart: mean NDCG with its 95 % interval.
        curves: one per K.
    """

    queries: int
    seeds: int
    single: tuple[float, float, float]
    lambdamart: tuple[float, float, float]
    curves: tuple[Curve, ...]

    def facts(self) -> dict[str, object]:
        """As JSON, without the curves' points between the ends."""
        return {
            "queries": self.queries,
            "seeds": self.seeds,
            "interval": "95 % percentile bootstrap over queries, each the mean over seeds",
            "single_linear_ranker": _triple(self.single),
            "lambdamart": _triple(self.lambdamart),
            "curves": [
                {
                    "specialists": curve.specialists,
                    "oracle": _triple((curve.oracle, float(curve.low[-1]), float(curve.high[-1]))),
                    "mean_specialist": _triple((curve.average, float(curve.low[0]), float(curve.high[0]))),
                    "break_even": None if curve.break_even is None else _triple(curve.break_even),
                    "beats_single_from": curve.beats_single,
                    "beats_lambdamart_from": curve.beats_lambdamart,
                }
                for curve in self.curves
            ],
        }


def _triple(values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("mean", "low", "high"), (round(v, 5) for v in values), strict=True))


def summarise(results: pl.DataFrame) -> Summary:
    """Curves, lines and break-even points; every query is the mean over its seeds."""
    by_query = (
        results.group_by("seed", "qid", "ranker", "specialists")
        .agg(pl.col("ndcg").max().alias("best"), pl.col("ndcg").mean().alias("mean"))
        .group_by("qid", "ranker", "specialists")
        .agg(pl.col("best").mean(), pl.col("mean").mean())
        .sort("qid")
    )
    lambdamart = by_query.filter(pl.col("ranker") == "lambdamart")["mean"].to_numpy()
    counts = sorted(by_query.filter(pl.col("ranker") == "srm")["specialists"].unique().to_list())
    of = {k: by_query.filter((pl.col("ranker") == "srm") & (pl.col("specialists") == k)) for k in counts}
    single = of[1]["mean"].to_numpy()
    return Summary(
        queries=len(lambdamart),
        seeds=results["seed"].n_unique(),
        single=_mean(single),
        lambdamart=_mean(lambdamart),
        curves=tuple(
            _curve(k, frame["best"].to_numpy(), frame["mean"].to_numpy(), single, lambdamart) for k, frame in of.items()
        ),
    )


def _mean(values: Float[np.ndarray, " N"]) -> tuple[float, float, float]:
    low, high = interval(resampled_means(values))
    return float(values.mean()), float(low), float(high)


def _curve(
    count: int,
    best: Float[np.ndarray, " N"],
    mean: Float[np.ndarray, " N"],
    single: Float[np.ndarray, " N"],
    lambdamart: Float[np.ndarray, " N"],
) -> Curve:
    columns = np.column_stack([best, mean, single, lambdamart])
    resampled = resampled_means(columns)
    top, bottom, alone, trees = resampled.T
    along = bottom[:, None] + ACCURACIES * (top - bottom)[:, None]
    low, high = interval(along)
    oracle, average = float(best.mean()), float(mean.mean())
    break_even = None
    if oracle - average > 1e-9:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = (alone - bottom) / (top - bottom)
        bounds = interval(ratios)
        break_even = (float((single.mean() - average) / (oracle - average)), float(bounds[0]), float(bounds[1]))
    return Curve(
        specialists=count,
        mean=average + ACCURACIES * (oracle - average),
        low=low,
        high=high,
        oracle=oracle,
        average=average,
        break_even=break_even,
        beats_single=None if break_even is None else _first_above(along - alone[:, None]),
        beats_lambdamart=_first_above(along - trees[:, None]),
    )


def _first_above(gains: Float[np.ndarray, "R A"]) -> float | None:
    above = interval(gains)[0] > 0
    return round(float(ACCURACIES[np.argmax(above)]), 2) if above.any() else None
