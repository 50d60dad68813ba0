"""``python -m listwright_lab.science.goals ORANGE_JUICE TAFENG --out FOLDER``: a weight per request, in four ways.

What the front of a bundle with two goals reaches, beside other ways to have a weight per request. All ways take
LambdaMART with lambdarank and the same settings, and grade values as a fit does. Weights are shares of the second goal.

``shares``
    What ships: a model for each goal, and the weighted sum of the candidates' shares of the list. 21 weights.
``sum``
    The same models, and the weighted sum of scores over their spread. 21 weights.
``conditioned``
    One model, fitted on every list three times, each time with a drawn weight. It is the gain of the mixed values, and
    one more feature. 21 weights.
``eleven``
    Eleven models, each fitted to the mixed values of one weight. A mixed value is the weighted sum of the goals'
    values, each over its mean.
``optimum``
    The order by the expected mixed values, where they are known. 21 weights.

====================  =========================================================================================
Set                   Goals
====================  =========================================================================================
``planted``           a property of the candidate besides the booking: expectations are known
``planted-value``     the margin of what was booked besides the booking
``orange-margin``     units of a brand in a store's week (in 31 grades), and its gross margin in %
``orange-money``      the same, and units x price x margin
``tafeng``            products of a visit that are bought, and price x amount of these
====================  =========================================================================================

A hypervolume is the area of test NDCG@10 by both goals that the front covers above a random order. It is of all weights
(``hypervolume``), and of those alone that no other one beats on the validation queries (``hypervolume_kept``): one sees
no more before a release. CPU seconds are those of the fits. ``--out`` keeps what is finished: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.metrics import JudgedLists, gains_of
from listwright.ranking.stages import GoalsStage
from listwright.training.console.progress import SILENT
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.protocol import HEADLINE, goal_lists
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.lambdamart import scores_of
from listwright.training.pipeline.goals import FittedGoal, fit_goals, score_goals
from listwright.training.pipeline.run import write_bundle
from listwright.training.pipeline.steps import Fitted, load
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings, Recipe
from listwright.training.recipe.data import TableData
from listwright.training.recipe.model import FirstStageAlone
from listwright_lab import machine
from listwright_lab.science.drawing import page, plain
from listwright_lab.science.goal_sets import SECOND, Data, Values, orange_juice, planted, ta_feng

SWEEP, FITS = np.linspace(0.0, 1.0, 21), np.linspace(0.0, 1.0, 11)
"""Weights of the second goal: of ways that take any weight, and of the eleven fits."""

FIRST_STAGE = LambdaMart(trials=1, relative="none", max_trees=400, settings=LambdaMartSettings(objective="lambdarank"))
"""Settings of every fit."""

COPIES = 3
"""Weights that a list is given for the model whose feature is the weight."""

PANELS = {
    "planted": ("planted", "NDCG@10 by bookings", "NDCG@10 by margin"),
    "orange-margin": ("orange juice", "NDCG@10 by units", "NDCG@10 by margin in %"),
}
"""Sets whose fronts, with seed 0, are drawn: title and axes."""

LINES = {
    "optimum": ("optimum", "#7d8590", ":"),
    "shares": ("weighted shares", "#388bfd", "-o"),
    "sum": ("weighted scores", "#d29922", "-o"),
    "eleven": ("eleven fits", "#3fb950", "o"),
}
"""Title, colour and form of each way that is drawn."""

HELD_OUT = ("valid", "test")

Points = dict[str, list[tuple[float, ...]]]
"""Mean NDCG by both goals that each weight reaches, of each part in :data:`HELD_OUT`."""


class Bench:
    """Lists of a split and their NDCG@10 by both goals; lists without a positive value count 0."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.goals = (
            JudgedLists(data.labels, data.offsets, gains=data.gains),
            goal_lists(data.goals[SECOND], data.offsets),
        )

    def means(self, scores: Float[np.ndarray, " R"]) -> tuple[float, ...]:
        """Return the mean NDCG by each goal."""
        return tuple(float(np.nan_to_num(of.measure((HEADLINE,), scores)[HEADLINE]).mean()) for of in self.goals)

    def by_chance(self) -> tuple[float, ...]:
        """Return the expected means of a random order: all candidates tie."""
        return self.means(np.zeros(len(self.goals[0].labels)))


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the area that points cover above a reference point."""
    above = np.maximum(np.asarray(points) - reference, 0.0)
    area = height = 0.0
    for x, y in above[np.lexsort((-above[:, 1], -above[:, 0]))]:
        area += x * max(y - height, 0.0)
        height = max(height, y)
    return float(area)


def unbeaten(points: Sequence[Sequence[float]]) -> list[bool]:
    """Return which points no other one beats by both goals."""
    of = np.asarray(points)
    return [not ((of >= own).all(axis=1) & (of > own).any(axis=1)).any() for own in of]


def mixed(values: Values, share: float | Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """Return the weighted sum of what two goals have."""
    return (1.0 - share) * values[:, 0] + share * values[:, 1]


Order = Callable[[Dataset, float], Float[np.ndarray, " R"]]
"""Scores of all rows for a weight of the second goal."""


def fit_eleven(run: RunContext, first: FittedFirstStage, values: Sequence[Values]) -> Order:
    """Fit a model for each weight."""
    train, valid = (
        replace(part, goals={f"{share:.1f}": mixed(of, share) for share in FITS})
        for part, of in zip((run.splits.train, run.splits.valid), values, strict=True)
    )
    models = [
        goal.model for goal in fit_goals(replace(run, splits=replace(run.splits, train=train, valid=valid)), first)
    ]
    return lambda data, share: scores_of(models[int(np.argmin(np.abs(FITS - share)))], data)


def fit_conditioned(run: RunContext, first: FittedFirstStage, values: Sequence[Values]) -> Order:
    """Fit one model to every list :data:`COPIES` times, each with a weight from another part of the interval."""
    rng = np.random.default_rng(run.recipe.seed)
    train, valid = (
        repeated(part, of, rng) for part, of in zip((run.splits.train, run.splits.valid), values, strict=True)
    )
    (goal,) = fit_goals(replace(run, splits=replace(run.splits, train=train, valid=valid)), first)
    return lambda data, share: scores_of(goal.model, with_share(data, share))


def repeated(data: Dataset, values: Values, rng: np.random.Generator) -> Dataset:
    """Return every list with several weights, of which some are 0 or 1."""
    count = len(data)
    parts = rng.permuted(np.tile(np.arange(COPIES), (count, 1)), axis=1)
    of_lists = np.clip((parts + rng.random((count, COPIES))) / COPIES * 1.2 - 0.1, 0.0, 1.0)
    copies = data.select(np.tile(np.arange(count), COPIES))
    share = np.repeat(of_lists.T.ravel(), copies.lengths)
    return replace(with_share(copies, share), goals={"mixed": mixed(np.tile(values, (COPIES, 1)), share)})


def with_share(data: Dataset, share: float | Float[np.ndarray, " R"]) -> Dataset:
    """Return the rows with the weight as a feature."""
    column = np.full(data.rows, share, dtype=np.float32)
    schema = FeatureSchema(features=(*data.schema.features, Feature(name="share")))
    return replace(data, features=np.column_stack([np.asarray(data.features), column]), schema=schema)


def measure(data: Data, seed: int) -> dict[str, Any]:
    """Fit and measure every way on one draw of a set."""
    spec = TableData(qid="qid", label="label", goals=(SECOND,), categorical=data.categorical, gains=data.gains)
    recipe = Recipe(name="goals", data=spec, model=FirstStageAlone(), seed=seed)
    recipe = recipe.model_copy(update={"first_stage": FIRST_STAGE.model_copy(update={"folds": 0})})
    with tempfile.TemporaryDirectory() as text:
        folders = {name: Path(text, "goals", name) for name in ("rows", "shares", "bundle", "conditioned", "eleven")}
        for folder in folders.values():
            folder.mkdir(parents=True)
        sources = {name: folders["rows"] / f"{name}.parquet" for name in ("train", *HELD_OUT)}
        for file, rows in zip(sources.values(), data.parts, strict=True):
            rows.write_parquet(file)
        splits = load(recipe, [f"{name}={file}" for name, file in sources.items()])
        benches = {name: Bench(part) for name, part in zip(HELD_OUT, (splits.valid, splits.test), strict=True)}
        run, began = RunContext(recipe, splits, folders["shares"], SILENT), time.process_time()
        first = first_stage.fit(recipe.first_stage, splits, seed=seed, state=run.state)
        fitted = fit_goals(run, first)
        seconds = {"shares": time.process_time() - began}
        seconds["sum"] = seconds["shares"]
        stage, ways = measure_bundle(recipe, splits, first, fitted[0], folders["bundle"])
        values = [
            np.column_stack([gains_of(of.labels, of.gains), of.goals[SECOND]]) for of in (splits.train, splits.valid)
        ]
        values = [of / values[0].mean(axis=0) for of in values]
        orders = {"sum": order_by_sum(stage, first, fitted[0])}
        for name, fit in (("conditioned", fit_conditioned), ("eleven", fit_eleven)):
            began = time.process_time()
            orders[name] = fit(replace(run, state=folders[name]), first, values)
            seconds[name] = time.process_time() - began
    for name, order in orders.items():
        weights = FITS if name == "eleven" else SWEEP
        ways[name] = {part: [of.means(order(of.data, share)) for share in weights] for part, of in benches.items()}
    if data.expected is not None:
        expected = data.expected / data.expected.mean(axis=0)
        ways["optimum"] = {"test": [benches["test"].means(mixed(expected, share)) for share in SWEEP]}
    default = tuple(stage.default_weights.values())
    tests = {point.weights: np.array(point.test) for point in stage.front}
    before, after = tests[1.0, 0.0], tests[default]
    return {
        "lists": [len(part) for part in (splits.train, splits.valid, splits.test)],
        "random_order": benches["test"].by_chance(),
        "default": {"weight": default[1], "cost": float(before[0] - after[0]), "gain": float(after[1] - before[1])},
        "ways": {name: {"cpu_seconds": seconds.get(name), **of} for name, of in ways.items()},
    }


def measure_bundle(
    recipe: Recipe, splits: Splits, first: FittedFirstStage, goal: FittedGoal, folder: Path
) -> tuple[GoalsStage, dict[str, Points]]:
    """Return the goals of the sealed bundle, and what it reaches."""
    fitted = Fitted(first, pointwise="probabilities are measured elsewhere", goals=(goal,))
    manifest = write_bundle(folder, folder, recipe, splits, fitted)
    stage = manifest.goals
    assert stage is not None
    alone = bundle.open_unsealed(folder, manifest.model_copy(update={"goals": None}))
    scored = [score_goals(alone, stage, part, first, (goal,)) for part in (splits.valid, splits.test)]
    points = {
        name: [of.means((1.0 - share, share)) for share in SWEEP] for name, of in zip(HELD_OUT, scored, strict=True)
    }
    return stage, {"shares": points}


def order_by_sum(stage: GoalsStage, first: FittedFirstStage, goal: FittedGoal) -> Order:
    """Return the weighted sum of scores over their spread."""
    spreads = stage.spreads["first_stage"], stage.others[0].spread

    def order(data: Dataset, share: float) -> Float[np.ndarray, " R"]:
        scores = np.column_stack([first.scores_of(data), scores_of(goal.model, data)])
        return mixed(scores / spreads, share)

    return order


def report(draws: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a set; ranges are over its seeds."""
    names = list(draws[0]["ways"])
    volumes = {name: [hypervolumes(draw["ways"][name], draw["random_order"]) for draw in draws] for name in names}
    seconds = {name: [draw["ways"][name].get("cpu_seconds") for draw in draws] for name in names}
    ways: dict[str, dict[str, Any]] = {}
    for name, of_draws in volumes.items():
        own = {key: np.array([of[key] for of in of_draws]) for key in of_draws[0]}
        ways[name] = {key: round(float(of.mean()), 4) for key, of in own.items()}
        if name != "optimum":
            ways[name]["cpu_seconds"] = round(float(np.mean(seconds[name])), 1)
        if name not in ("eleven", "optimum"):
            ways[name]["cpu_of_eleven"] = round(float(np.mean(seconds[name]) / np.mean(seconds["eleven"])), 3)
            for key, of in own.items():
                less = of - [of_eleven[key] for of_eleven in volumes["eleven"]]
                ways[name][f"{key}_less_eleven"] = [
                    round(float(value), 4) for value in (less.mean(), less.min(), less.max())
                ]
    return {
        "seeds": len(draws),
        "lists": draws[0]["lists"],
        "random_order": [round(float(mean), 4) for mean in np.mean([draw["random_order"] for draw in draws], axis=0)],
        "ways": ways,
        "default": {key: [round(draw["default"][key], 4) for draw in draws] for key in ("weight", "cost", "gain")},
    }


def hypervolumes(way: dict[str, Any], reference: Sequence[float]) -> dict[str, float]:
    """Return the hypervolume of all weights, and of those that are not beaten on the validation lists."""
    volumes = {"hypervolume": hypervolume(way["test"], reference)}
    if "valid" in way:
        left = [point for point, stays in zip(way["test"], unbeaten(way["valid"]), strict=True) if stays]
        volumes["hypervolume_kept"] = hypervolume(left, reference)
    return volumes


def draw_fronts(results: dict[str, dict[str, Any]], file: Path) -> None:
    """Draw the test NDCG of the ways' weights, a panel for each set."""
    with page(file, 8.4, 3.8, salt="goals") as figure:
        for axes, (name, result) in zip(figure.subplots(1, len(results)), results.items(), strict=True):
            plain(axes)
            title, label, second = PANELS[name]
            for way, (line, colour, form) in LINES.items():
                if way in result["ways"]:
                    points = np.array(result["ways"][way]["test"])
                    axes.plot(*points.T, form, markersize=3.5, color=colour, label=line)
            (first, other), default = result["ways"]["shares"]["test"][0], result["default"]
            reached = (first - default["cost"], other + default["gain"])
            axes.plot(*reached, "*", markersize=12, color=LINES["shares"][1], label="default weight")
            axes.set(title=title, xlabel=label, ylabel=second)
        figure.axes[0].legend(frameon=False)


def main() -> None:
    """Run the command line; write ``benchmarks/results/goals.json`` and ``goals.svg``."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.goals",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("orange_juice", type=Path, metavar="ORANGE_JUICE", help="orangeJuice.rda of R's bayesm")
    parser.add_argument("tafeng", type=Path, metavar="TAFENG", help="as for listwright fit tafeng --data")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds of each set (default: 3)")
    options = parser.parse_args()
    sets: dict[str, Callable[[int], Data]] = {
        "planted": lambda seed: planted(seed, of_booked=False),
        "planted-value": lambda seed: planted(seed, of_booked=True),
        "orange-margin": lambda seed: orange_juice(options.orange_juice, seed, money=False),
        "orange-money": lambda seed: orange_juice(options.orange_juice, seed, money=True),
        "tafeng": lambda seed: ta_feng(options.tafeng, seed),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    files = {name: [options.out / f"{name}-{seed}.json" for seed in range(options.seeds)] for name in sets}
    for seed in range(options.seeds):
        for name, read in sets.items():
            if not (file := files[name][seed]).exists():
                atomic_write(file, json.dumps(measure(read(seed), seed)))
                print(file.stem, flush=True)
    draws = {name: [json.loads(file.read_text(encoding="utf-8")) for file in of] for name, of in files.items()}
    results = {name: report(of) for name, of in draws.items()}
    draw_fronts({name: draws[name][0] for name in PANELS}, machine.RESULTS / "goals.svg")
    command = f"python -m listwright_lab.science.goals ORANGE_JUICE TAFENG --out FOLDER --seeds {options.seeds}"
    print(machine.save("goals", command, {"sets": results}))


if __name__ == "__main__":
    main()
