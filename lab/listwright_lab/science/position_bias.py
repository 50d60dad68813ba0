"""``python -m listwright_lab.science.position_bias [--data PATH]``: propensities and debiased fits on simulated clicks.

The standard protocol (Joachims et al. 2017, section 6; Ai et al. 2018, section 5): a weak ranker, LightGBM on a tenth
of the training queries, serves training queries again and again. Visitors click by a position-based model from the true
labels. Neighbours are swapped in half of another log, which propensities are estimated from. Then LambdaMART is fitted
to the clicks as they are (naive), to the clicks weighed by the estimated propensities (debiased), and to the true
labels (full information). All are measured by the true labels of the test queries. The five folds of MQ2008 take turns
over the seeds, so every query of it is tested. Sets and strengths that are not asked for stay in the result file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from listwright.training.data.dataset import Splits
from listwright.training.data.synthetic.traffic import examination
from listwright.training.data.tables.table import inverse_propensities
from listwright.training.evaluation.bootstrap import RESAMPLES, draw_counts, percentile_interval
from listwright.training.first_stage import lambdamart
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.data import Propensity
from listwright.training.traffic.propensity import PositionBias
from listwright_lab import machine
from listwright_lab.science import drawing
from listwright_lab.science.position_bias_clicks import PLACES, SPEC, Served, harvested, propensities, serve

STRENGTHS = (0.5, 1.0, 1.5)
SESSIONS = (300, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
NDCG_AT = 10
WAYS = ("naive", "debiased", "full information")
REQUESTS = 150_000
"""Of the logs that propensities are estimated from: enough clicks at the last place under the strongest bias."""

FIGURE = machine.CHECKOUT / "docs" / "position-bias.svg"


def fitted(
    served: tuple[Served, Served], sessions: int, strength: float, seed: int, bias: PositionBias | None
) -> lambdamart.TunedLambdaMart:
    """Fit LambdaMART on clicks, weighted where propensities are given.

    Validation queries are clicked a third as often.
    """
    rng = np.random.default_rng([seed, 2, sessions])
    parts = []
    for one, count in zip(served, (sessions, max(100, sessions // 3)), strict=True):
        data, places = one.sessions(count, strength, rng)
        if bias is not None:
            spec = Propensity(values=tuple(bias.values.tolist()), clip=0.01)
            data = replace(data, weights=inverse_propensities(data.labels, places, data.offsets, spec))
        parts.append(data)
    splits = Splits(parts[0], parts[1], parts[1], "clicks").with_normalised_weights()
    return lambdamart.tune(splits.train, splits.valid, SPEC, seed=seed)


def measure(
    folds: Sequence[Splits],
    *,
    seeds: int,
    strengths: tuple[float, ...],
    sessions: tuple[int, ...],
    requests: int = REQUESTS,
) -> dict[str, Any]:
    """Measure one set, whose folds take turns.

    The figures are the error of propensities, and NDCG of every fit by number of sessions.
    """
    estimated, curves = [], []
    for strength in strengths:
        values: dict[tuple[str, int], list[Float[np.ndarray, " N"]]] = {}
        clicks: dict[int, list[int]] = {}
        for seed in range(seeds):
            splits = folds[seed % len(folds)]
            served = serve(splits, seed)
            from_swaps = propensities(served[0], strength, seed, requests)
            for bias in (from_swaps, harvested(served[0], strength, seed, requests)):
                estimated.append({"strength": strength, "seed": seed, **_against_truth(bias, strength)})
            full = lambdamart.tune(splits.train, splits.valid, SPEC, seed=seed)
            for count in sessions:
                models = {"naive": fitted(served, count, strength, seed, None), "full information": full}
                models["debiased"] = fitted(served, count, strength, seed, from_swaps)
                for way, model in models.items():
                    scores = lambdamart.scores_of(model.model, splits.test)
                    values.setdefault((way, count), []).append(lambdamart.query_ndcg(splits.test, scores, NDCG_AT))
                data, _ = served[0].sessions(count, strength, np.random.default_rng([seed, 2, count]))
                clicks.setdefault(count, []).append(int((data.labels > 0).sum()))
            print(f"strength {strength}, seed {seed}", flush=True)
        curves += [_point(values, len(folds), strength, count, float(np.mean(clicks[count]))) for count in sessions]
    return {"propensities": estimated, "curves": curves}


def _against_truth(bias: PositionBias, strength: float) -> dict[str, Any]:
    truth = examination(PLACES, strength)
    inside = ((bias.low <= truth) & (truth <= bias.high))[1:]
    error = float(np.abs(bias.values - truth).max())
    return {"method": bias.way, "covered": int(inside.sum()), "places": len(inside), "largest_error": round(error, 4)}


def _point(
    values: dict[tuple[str, int], list[Float[np.ndarray, " N"]]],
    folds: int,
    strength: float,
    count: int,
    clicks: float,
) -> dict[str, Any]:
    """Return means over seeds and queries, and the gain of debiasing with its interval over both."""
    of = {way: values[way, count] for way in WAYS}
    gain = [debiased - naive for debiased, naive in zip(of["debiased"], of["naive"], strict=True)]
    low, high = percentile_interval(resampled(gain, folds))
    means = {way: round(float(np.concatenate(each).mean()), 4) for way, each in of.items()}
    mean = float(np.concatenate(gain).mean())
    rounded = {"mean": round(mean, 4), "low": round(float(low), 4), "high": round(float(high), 4)}
    return {"strength": strength, "sessions": count, "clicks": round(clicks), **means, "debiased_over_naive": rounded}


def resampled(gains: Sequence[Float[np.ndarray, " N"]], folds: int) -> Float[np.ndarray, " R"]:
    """Compute the means over bootstrap samples of the queries and, independently, of the seeds.

    Args:
        gains: of each seed, the gain of each test query of its fold.
        folds: that take turns over the seeds; two seeds of one fold share their queries.
    """
    used = [gains[fold] for fold in range(min(folds, len(gains)))]
    ends = np.cumsum([len(gain) for gain in used])
    rng, queries, seeds = np.random.default_rng(0), int(ends[-1]), len(gains)
    of_queries, of_seeds = (draw_counts(count, rng) for count in (queries, seeds))
    sums, counts = np.zeros((RESAMPLES, seeds)), np.zeros((RESAMPLES, seeds))
    for seed, gain in enumerate(gains):
        end = ends[seed % folds]
        drawn = of_queries[:, end - len(gain) : end]
        sums[:, seed], counts[:, seed] = drawn @ gain, drawn.sum(axis=1)
    means: Float[np.ndarray, " R"] = (of_seeds * sums).sum(axis=1) / (of_seeds * counts).sum(axis=1)
    return means


def draw(sets: dict[str, Any], path: Path = FIGURE) -> Path:
    """Draw NDCG against number of clicks: a column for each strength, a row for each set."""
    strengths = sorted({point["strength"] for result in sets.values() for point in result["curves"]})
    with drawing.page(path, 3.0 * len(strengths), 2.6 * len(sets), salt="position-bias") as figure:
        plots = figure.subplots(len(sets), len(strengths), sharex="col", sharey="row", squeeze=False)
        for row, (name, result) in zip(plots, sets.items(), strict=True):
            for axes, strength in zip(row, strengths, strict=True):
                points = [point for point in result["curves"] if point["strength"] == strength]
                for way, colour in zip(WAYS, ("#c4540a", "#0b6bb0", drawing.GREY), strict=True):
                    clicks = [point["clicks"] for point in points]
                    axes.plot(clicks, [point[way] for point in points], color=colour, label=way, marker=".")
                axes.set_xscale("log")
                axes.set_title(f"{name}, strength {strength:g}", fontsize=10)
                drawing.plain(axes)
            row[0].set_ylabel(f"NDCG@{NDCG_AT}, true labels")
        for axes in plots[-1]:
            axes.set_xlabel("clicks")
        figure.legend(*plots[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return path


def sets_of(data: Path | None, *, queries: int = 1000) -> dict[str, list[Splits]]:
    """Return a planted set, and the folds of MQ2008 where it is there."""
    recipe = config.load("demo")
    changes = {"queries": queries, "min_length": 10, "max_length": 30, "shift": 0.0, "categorical": 0}
    planted = recipe.model_copy(update={"data": recipe.data.model_copy(update=changes)})
    sets = {"planted": [load(planted, [])]}
    if data is not None:
        recipe = config.load("mq2008")
        folds = range(1, 6)
        sets["mq2008"] = [load(recipe.model_copy(update={"fold": fold}), [str(data)]) for fold in folds]
    return sets


def main() -> None:
    """Run the command line; write ``benchmarks/results/position_bias.json`` and ``docs/position-bias.svg``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.position_bias", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="PATH", help="folder of MQ2008; without it, planted data alone")
    parser.add_argument("--seeds", type=int, default=10, help="(default: 10)")
    parser.add_argument("--strengths", type=float, nargs="+", default=list(STRENGTHS), help="(default: 0.5 1 1.5)")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of the logs for propensities")
    parser.add_argument("--most", type=int, default=30_000, help="sessions of the largest log (default: 30000)")
    parser.add_argument("--only", metavar="SET", help="planted or mq2008 (default: both)")
    options = parser.parse_args()
    if options.data is None or not options.data.is_dir():
        print(f"no MQ2008 at {options.data}: planted data alone; name its folder with --data")
        options.data = None
    counts = tuple(count for count in SESSIONS if count <= options.most)
    strengths = tuple(options.strengths)
    folds_by_set = sets_of(options.data)
    if options.only is not None:
        if options.only not in folds_by_set:
            parser.error(f"--only {options.only}: there is {' and '.join(folds_by_set)}")
        folds_by_set = {options.only: folds_by_set[options.only]}
    rest = f"--seeds {options.seeds} --most {options.most} --strengths {' '.join(map(str, strengths))}"
    rest += f" --requests {options.requests}" if options.requests != REQUESTS else ""
    path = machine.RESULTS / "position_bias.json"
    sets = json.loads(path.read_text(encoding="utf-8"))["sets"] if path.exists() else {}
    settings = {"seeds": options.seeds, "strengths": list(strengths)}
    for name, folds in folds_by_set.items():
        figures = measure(folds, seeds=options.seeds, strengths=strengths, sessions=counts, requests=options.requests)
        given = "" if name == "planted" else "--data PATH "
        command = f"python -m listwright_lab.science.position_bias {given}--only {name} {rest}"
        sets[name] = beside(sets.get(name), {"runs": [{"command": command, **settings}], **figures})
    print(machine.save("position_bias", "see the runs of each set", {"shown": PLACES, "sets": sets}))
    print(draw(sets))


def beside(before: dict[str, Any] | None, figures: dict[str, Any]) -> dict[str, Any]:
    """Return the new figures, with the strengths of earlier runs that were not measured now."""
    if before is None:
        return figures
    strengths = {point["strength"] for point in figures["curves"]}
    earlier = {
        name: [one for one in before[name] if one["strength"] not in strengths] for name in ("propensities", "curves")
    }
    left = [[one for one in run["strengths"] if one not in strengths] for run in before["runs"]]
    runs = [{**run, "strengths": some} for run, some in zip(before["runs"], left, strict=True) if some]
    return {
        "runs": [*runs, *figures["runs"]],
        **{name: sorted([*earlier[name], *figures[name]], key=lambda one: one["strength"]) for name in earlier},
    }


if __name__ == "__main__":
    main()
