"""Suite ``oracle``: specialists behind a noisy oracle (Jagerman, Oosterhuis, de Rijke, 2017, Figure 2).

An oracle of accuracy a picks a query's best specialist with probability a and a random one otherwise. Its expected
NDCG is ``a max_k + (1 - a) mean_k`` per query: exact, nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes

from listwright.ranking.errors import RecipeError
from listwright.ranking.scorers import OnnxScorer
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.export.second_stages import to_onnx
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart
from listwright.training.pipeline.steps import load
from listwright.training.recipe.config import LambdaMart, Recipe, Srm
from listwright.training.reporting.page import COLOURS, INK, PageFigure, PageSection, PageTable, plot, render
from listwright.training.second_stage.loop import query_ndcg
from listwright.training.specialists.srm import fit_srm, lists_of
from listwright_lab.suites.splits import measurable

ACCURACIES = np.linspace(0.0, 1.0, 101)


def measure(
    recipe: Recipe,
    sources: Sequence[str],
    counts: Sequence[int],
    state: Path,
    *,
    ndcg_at: int,
    task: Task = NO_TASK,
) -> pl.DataFrame:
    """Return the NDCG of every test query under LambdaMART and under every specialist of every K.

    Args:
        recipe: Recipe with the first stage, and the specialists' settings except K.
        sources: Paths of the data; none for synthetic data.
        counts: Numbers K of specialists, 1 among them.
        state: Folder for checkpoints.
        ndcg_at: Cutoff of the NDCG; a query without a relevant candidate counts 0.
        task: Progress bar that shows the current step.

    Returns:
        One row per query and ranker: ``qid``, ``ranker``, ``specialists`` K, ``specialist`` k, ``ndcg``.
    """
    if not isinstance(recipe.first_stage, LambdaMart):
        raise RecipeError(f"recipe {recipe.name!r} brings its own first stage; the oracle suite fits LambdaMART itself")
    splits = measurable(load(recipe, sources))
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
        scorer = OnnxScorer(to_onnx(fitted.module, width), width, columns=count)
        by_specialists = [scorer.score(lists.inputs(n)) for n in range(len(test))]
        for k in range(count):
            values = query_ndcg([scores[:, k] for scores in by_specialists], lists, test, test_scores, ndcg_at)
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
        specialists: Number K of specialists.
        mean: ``(accuracies,)`` expected NDCG at each of :data:`ACCURACIES`.
        low, high: ``(accuracies,)`` ends of the 95 % interval over queries.
        oracle: NDCG of the perfect oracle, a = 1.
        average: NDCG of a random choice, a = 0.
        break_even: Accuracy at which the curve reaches the single ranker, and the ends of its interval; None where
            K = 1 or the specialists never differ.
        beats_single, beats_lambdamart: Smallest accuracy at which the paired interval of the gain lies above 0; None
            where there is none.
    """

    specialists: int
    mean: Float[np.ndarray, " accuracies"]
    low: Float[np.ndarray, " accuracies"]
    high: Float[np.ndarray, " accuracies"]
    oracle: float
    average: float
    break_even: tuple[float, float, float] | None
    beats_single: float | None
    beats_lambdamart: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of the suite ``oracle``.

    Args:
        queries: Number of test queries.
        seeds: Number of seeds.
        single: Mean NDCG of one linear ranker, and the ends of its 95 % interval.
        lambdamart: Mean NDCG of LambdaMART, and the ends of its 95 % interval.
        curves: Curve of each K.
    """

    queries: int
    seeds: int
    single: tuple[float, float, float]
    lambdamart: tuple[float, float, float]
    curves: tuple[Curve, ...]

    def facts(self) -> dict[str, object]:
        """Return the results as JSON, without the curves' points between the ends."""
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
    """Return curves, lines and break-even points; every query is the mean over its seeds."""
    by_query = (
        results.group_by("seed", "qid", "ranker", "specialists")
        .agg(pl.col("ndcg").max().alias("best"), pl.col("ndcg").mean().alias("mean"))
        .group_by("qid", "ranker", "specialists")
        .agg(pl.col("best").mean(), pl.col("mean").mean())
        .sort("qid")
    )
    lambdamart = by_query.filter(pl.col("ranker") == "lambdamart")["mean"].to_numpy()
    counts = sorted(by_query.filter(pl.col("ranker") == "srm")["specialists"].unique().to_list())
    by_count = {k: by_query.filter((pl.col("ranker") == "srm") & (pl.col("specialists") == k)) for k in counts}
    single = by_count[1]["mean"].to_numpy()
    return Summary(
        queries=len(lambdamart),
        seeds=results["seed"].n_unique(),
        single=_mean(single),
        lambdamart=_mean(lambdamart),
        curves=tuple(
            _curve(k, frame["best"].to_numpy(), frame["mean"].to_numpy(), single, lambdamart)
            for k, frame in by_count.items()
        ),
    )


def _mean(values: Float[np.ndarray, " N"]) -> tuple[float, float, float]:
    low, high = percentile_interval(resample_means(values))
    return float(values.mean()), float(low), float(high)


def _curve(
    count: int,
    best: Float[np.ndarray, " N"],
    mean: Float[np.ndarray, " N"],
    single: Float[np.ndarray, " N"],
    lambdamart: Float[np.ndarray, " N"],
) -> Curve:
    columns = np.column_stack([best, mean, single, lambdamart])
    resampled = resample_means(columns)
    top, bottom, alone, trees = resampled.T
    along = bottom[:, None] + ACCURACIES * (top - bottom)[:, None]
    low, high = percentile_interval(along)
    oracle, average = float(best.mean()), float(mean.mean())
    break_even = None
    if oracle - average > 1e-9:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = (alone - bottom) / (top - bottom)
        bounds = percentile_interval(ratios)
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


def _first_above(gains: Float[np.ndarray, "samples accuracies"]) -> float | None:
    above = percentile_interval(gains)[0] > 0
    return round(float(ACCURACIES[np.argmax(above)]), 2) if above.any() else None


def page(data: str, summary: Summary, *, ndcg_at: int, **repeat: Any) -> str:
    """Return the page: curves, the table behind them, and what they mean; ``repeat`` goes to :func:`render`."""
    rows = [
        [
            f"SRM, K = {curve.specialists}",
            f"{curve.average:.4f}",
            f"{curve.oracle:.4f}",
            "" if curve.break_even is None else _with_interval(curve.break_even),
            *(_accuracy(a) if curve.specialists > 1 else "" for a in (curve.beats_single, curve.beats_lambdamart)),
        ]
        for curve in summary.curves
    ]
    head = ["", "a = 0", "a = 100 %", "break-even a*", "> one linear", "> LambdaMART"]
    lines = [
        ["one linear ranker (K = 1)", _with_interval(summary.single)],
        ["LambdaMART", _with_interval(summary.lambdamart)],
    ]
    caption = (
        "Expected NDCG if an oracle of this accuracy picks the specialist: it is right with this probability and "
        "random otherwise. Bands: 95 % over queries. Dots: break-even with one linear ranker."
    )
    note = (
        "a: accuracy of the oracle. The last two columns: the smallest one at which the paired 95 % interval of the "
        "gain lies above 0. A classifier that is right in a share p of the queries has a = (p - 1/K) / (1 - 1/K)."
    )
    return render(
        f"Specialists behind a noisy oracle: {data}",
        [sentence(summary)],
        [
            PageSection(
                figures=[PageFigure(curves_figure(summary, ndcg_at), caption)],
                tables=[
                    PageTable(f"NDCG@{ndcg_at} and accuracies", head, rows, note),
                    PageTable("Without specialists", ["", f"NDCG@{ndcg_at}"], lines),
                ],
            )
        ],
        **repeat,
    )


def sentence(summary: Summary) -> str:
    """Describe the curves in one sentence."""
    several = [curve for curve in summary.curves if curve.specialists > 1]
    beaten = [curve for curve in several if curve.beats_lambdamart is not None]
    if not several:
        return "Nothing to choose among: every K is 1."
    if not beaten:
        return "No oracle, not even a perfect one, lifts the specialists above LambdaMART beyond doubt."
    best = min(beaten, key=lambda curve: curve.beats_lambdamart or 0.0)
    if best.beats_lambdamart == 0.0:
        return f"Even a random choice among {best.specialists} linear specialists beats LambdaMART beyond doubt."
    return (
        f"An oracle must be right in {_accuracy(best.beats_lambdamart)} of the cases (chance taken off) before "
        f"{best.specialists} linear specialists beat LambdaMART beyond doubt; a perfect one reaches {best.oracle:.3f} "
        f"where LambdaMART has {summary.lambdamart[0]:.3f}."
    )


@plot(legend_columns=2)
def curves_figure(axes: Axes, summary: Summary, ndcg_at: int) -> tuple[str, str]:
    """Draw NDCG against the oracle's accuracy, one curve per K, with the two single rankers as lines."""
    accuracy = ACCURACIES * 100
    for colour, curve in zip(COLOURS, (c for c in summary.curves if c.specialists > 1), strict=False):
        axes.plot(accuracy, curve.mean, color=colour, label=f"SRM, K = {curve.specialists}")
        axes.fill_between(accuracy, curve.low, curve.high, color=colour, alpha=0.13, linewidth=0)
        if curve.break_even is not None and 0.0 <= curve.break_even[0] <= 1.0:
            axes.plot(curve.break_even[0] * 100, summary.single[0], "o", color=colour, markersize=5)
    for name, line, dash in (("LambdaMART", summary.lambdamart, "--"), ("one linear ranker", summary.single, ":")):
        axes.axhline(line[0], color=INK, linestyle=dash, linewidth=1.3, label=name)
        axes.axhspan(line[1], line[2], color=INK, alpha=0.05, linewidth=0)
    axes.set(xlabel="accuracy of the oracle, %", ylabel=f"NDCG@{ndcg_at}", xlim=(0, 100))
    return "oracle", f"NDCG@{ndcg_at} against the accuracy of an oracle that picks the specialist"


def _with_interval(values: tuple[float, float, float] | None) -> str:
    return "none" if values is None else f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"


def _accuracy(value: float | None) -> str:
    return "never" if value is None else f"{value:.0%}"
