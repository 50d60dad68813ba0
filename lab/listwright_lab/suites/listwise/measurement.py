"""One unit of work of the listwise suites: a method fitted once, and its metrics for every test query.

A method's settings may be searched on the training and validation queries of a fold; all its seeds share them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float

from listwright.ranking.aggregates import Aggregates, AnomalyScore
from listwright.ranking.compiled.forest import open_forest
from listwright.ranking.errors import RecipeError
from listwright.ranking.manifest import Comparison
from listwright.ranking.metrics import JudgedLists
from listwright.ranking.order import sort_keys
from listwright.ranking.plain_file import read_object
from listwright.ranking.relative import NUMBER_KINDS
from listwright.training.console.progress import SILENT
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.protocol import OTHERS, highest_gain
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart, relative
from listwright.training.first_stage.fit import FittedFirstStage, kinds_of
from listwright.training.job_folder import write_json
from listwright.training.pipeline import steps
from listwright.training.pipeline.choice import better_first_stage
from listwright.training.pipeline.steps import load
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings, Recipe
from listwright.training.recipe.data import SyntheticData
from listwright.training.recipe.model import FirstStageAlone, Model, NetworkSpec
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.batching import Lists, lists_for
from listwright.training.second_stage.fit import search_network, with_values
from listwright.training.second_stage.loop import predict
from listwright.training.specialists.router import fit_anomaly
from listwright_lab.suites.listwise.methods import (
    LAMBDAMART,
    LAMBDAMART_RELATIVE,
    SHIPPED,
    Shipped,
    lambdamart_of,
    name_on,
    with_networks,
)
from listwright_lab.suites.results_folder import UnitFolders, part_file, settings_file

NDCG_AT = (1, 3, 5, 10, 50)

TRUNCATED = " truncated"
"""Suffix of an NDCG whose ideal covers only the candidates within the first stage's cutoff."""


@dataclass(frozen=True, slots=True)
class MethodFit:
    """Fit of one method with one seed on one fold.

    Args:
        recipe: Recipe with the data, their fold and shift, and the first stage; its own seed draws and splits the data.
        sources: Paths of the data; none for synthetic data.
        seed: Seed of the first stage, the second stage and the anomaly score.
        method: Name of the method.
        spec: Second stage, the first stage alone, or the choice among several rankers.
        cutoff: C, number of candidates that the truncated ideal covers; the same for all methods.
        relative: Whether the first stage sees list-relative columns.
        trials: Settings to try for every network on the fold's validation queries; 0 keeps the recipe's.
        anomaly: Whether the first stage alone also gives the test queries their anomaly scores.
    """

    recipe: Recipe
    sources: tuple[str, ...]
    seed: int
    method: str
    spec: Model | Shipped
    cutoff: int
    relative: bool = False
    trials: int = 0
    anomaly: bool = False

    @property
    def shift(self) -> float | None:
        """Planted shift of the data; None where none is planted."""
        return self.recipe.data.shift if isinstance(self.recipe.data, SyntheticData) else None

    @property
    def data_name(self) -> str:
        """Name of shift and fold: fits of the same name share data and found settings."""
        return f"{self._shift_name}fold-{self.recipe.fold}"

    @property
    def state_name(self) -> str:
        """Name of shift, seed and fold: fits of the same name share first stages and a folder of checkpoints."""
        return f"{self._shift_name}seed-{self.seed}-fold-{self.recipe.fold}"

    @property
    def _shift_name(self) -> str:
        return "" if self.shift is None else f"shift-{self.shift:g}-"

    @property
    def name(self) -> str:
        """Name of the fit in the results folder."""
        return f"{self.state_name}-{self.method}"

    @property
    def chooses(self) -> bool:
        """Whether the fit copies the results of another method, so that it runs last."""
        return isinstance(self.spec, Shipped)

    @property
    def first_stages(self) -> tuple[str, ...]:
        """Names of the first stages that the fit needs."""
        if self.chooses:
            return (LAMBDAMART, LAMBDAMART_RELATIVE)
        return (name_on(LAMBDAMART, self.relative),)

    @property
    def searches(self) -> tuple[str, ...]:
        """Names of the searches whose settings the fit needs; all seeds share them."""
        names = list(self.first_stages)
        if self.chooses or (self.trials and not isinstance(self.spec, FirstStageAlone)):
            names.append(self.method)
        return tuple(map(self.search_name, names))

    def search_name(self, method: str) -> str:
        """Return the name of the search for the settings of a method on these data."""
        return f"{self.data_name}-{method}"


def measure(fit: MethodFit, folders: UnitFolders) -> pl.DataFrame:
    """Fit a method, and rank the test queries with it.

    Args:
        fit: Method, data and seed.
        folders: Folders of checkpoints, found settings and results, which other fits share.

    Returns:
        One row per test query: shift, seed, fold and method, every metric (NDCG is null for a query without a relevant
        candidate), and epochs, trees and seconds of the fit.
    """
    splits = _splits(fit.recipe, fit.sources)
    spec = fit.spec
    if isinstance(spec, Shipped):
        return _shipped(fit, spec, splits, folders)
    test = splits.test
    started = time.perf_counter()
    first = _first_stage(fit, splits, folders, relative=fit.relative)
    scores = first.scores_of(test)
    checkpoint = folders.state / f"{fit.method}.pt"
    if not isinstance(spec, FirstStageAlone):
        spec = _network(fit, fit.method, spec, splits, first, folders)
    fitted = second_stage.fit(spec, splits, first, seed=fit.seed, checkpoint=checkpoint)
    if fitted is None:
        lists = Lists(test, scores, cutoff=fit.cutoff, append_score=False)
        second_scores = [scores[test.slice(n)][lists.candidates(n)] for n in range(len(test))]
    else:
        widened = relative.widened_part(test, first.relative) if fitted.spec.relative else test
        lists = lists_for(fitted.spec.model_copy(update={"cutoff": fit.cutoff}), widened, scores)
        second_scores = predict(fitted.module, lists)
    seconds = time.perf_counter() - started
    values = _measure(test, lists, scores, second_scores)
    anomaly = _anomaly(splits, first.train_scores, scores, fit.seed) if fit.anomaly and fitted is None else None
    checkpoint.unlink(missing_ok=True)
    return pl.DataFrame(
        {
            "shift": pl.Series([fit.shift] * len(test), dtype=pl.Float64),
            "seed": [fit.seed] * len(test),
            "fold": [fit.recipe.fold] * len(test),
            "method": [fit.method] * len(test),
            "chosen": pl.Series([None] * len(test), dtype=pl.String),
            "qid": list(test.qids),
            "candidates": test.lengths,
            "relevant": [int((labels > 0).sum()) for _, labels in test.lists()],
            "anomaly": pl.Series(anomaly, dtype=pl.Float64) if anomaly is not None else _nothing(len(test)),
            **{name: pl.Series(of_lists).fill_nan(None) for name, of_lists in values.items()},
            "epochs": [0 if fitted is None else len(fitted.history)] * len(test),
            "best_epoch": [0 if fitted is None else fitted.best_epoch] * len(test),
            "lambda_of_eq_10": [0.0 if fitted is None else fitted.equivalent_lambda] * len(test),
            "trees": [first.facts["trees"]] * len(test),
            "seconds": [seconds] * len(test),
            "all_queries": [sum(len(part) for part in (splits.train, splits.valid, test))] * len(test),
            "features": [len(test.schema) + len(splits.dropped)] * len(test),
        }
    )


def _shipped(fit: MethodFit, spec: Shipped, splits: Splits, folders: UnitFolders) -> pl.DataFrame:
    """Fit the ranker that ``listwright fit`` chooses on the fold, with this seed."""
    started = time.perf_counter()
    strategy, on_relative = _choice(fit, spec, splits, folders)
    alone = strategy == "first_stage"
    network_spec = (
        FirstStageAlone() if alone else next(network for network in spec.networks if network.kind == strategy)
    )
    name = name_on(LAMBDAMART if alone else strategy, on_relative)
    other = replace(fit, method=name, spec=network_spec, relative=on_relative, trials=0)
    file = part_file(folders.parts, other.name)
    same = alone or not fit.trials  # a searched network is another row, with other settings
    results = pl.read_parquet(file) if same and file.exists() else measure(other, folders)
    facts = {"method": fit.method, "chosen": name, "seconds": time.perf_counter() - started}
    return results.with_columns(**{column: pl.lit(value) for column, value in facts.items()})


def _choice(fit: MethodFit, spec: Shipped, splits: Splits, folders: UnitFolders) -> tuple[str, bool]:
    """Return the ranker that a fit of the recipe makes the default, and whether it reads list-relative columns.

    The first seed of the fold chooses, as searches do, and all seeds share it.
    """
    file = settings_file(folders.tuned, fit.search_name(SHIPPED))
    if not file.exists():
        first, comparisons = _better_first_stage(fit, splits, folders)
        recipe = with_networks(fit.recipe, spec.networks, spec.folds)
        state = folders.state / SHIPPED  # its networks have another seed than those of the suite
        state.mkdir(exist_ok=True)
        run = RunContext(recipe, splits, state, SILENT, "cpu")
        choice = steps.choose(run, first, comparisons)
        facts = [comparison.model_dump() for comparison in choice.comparisons]
        write_json(file, {"strategy": choice.strategy, "relative": bool(first.relative), "comparisons": facts})
    content = read_object(file)
    return content["strategy"], content["relative"]


def _better_first_stage(
    fit: MethodFit, splits: Splits, folders: UnitFolders
) -> tuple[FittedFirstStage, tuple[Comparison, ...]]:
    """Return the first stage that a fit of the recipe would choose, and why."""
    spec = lambdamart_of(fit.recipe)
    if spec.relative != "auto":
        return _first_stage(fit, splits, folders, relative=spec.relative != "none"), ()
    plain, with_columns = (_first_stage(fit, splits, folders, relative=which) for which in (False, True))
    better, _, comparisons = better_first_stage(plain, with_columns, splits, spec.ndcg_at)
    return better, comparisons


def _first_stage(fit: MethodFit, splits: Splits, folders: UnitFolders, *, relative: bool) -> FittedFirstStage:
    """Fit a first stage with the settings that were found on these data."""
    spec = lambdamart_of(fit.recipe)
    kinds = (NUMBER_KINDS if isinstance(spec.relative, str) else spec.relative) if relative else "none"
    file = settings_file(folders.tuned, fit.search_name(name_on(LAMBDAMART, relative)))
    widened_spec = spec.model_copy(update={"relative": kinds})
    tuned = tuned_lambdamart(widened_spec, splits, file, seed=fit.recipe.seed)
    return first_stage.fit(tuned, splits, seed=fit.seed, state=folders.state)


def _network(
    fit: MethodFit, name: str, spec: NetworkSpec, splits: Splits, first: FittedFirstStage, folders: UnitFolders
) -> NetworkSpec:
    """Return the settings of the network of that name."""
    if not fit.trials:
        return spec
    file = settings_file(folders.tuned, fit.search_name(name))
    return tuned_network(spec, splits, first, file, trials=fit.trials, seed=fit.recipe.seed, state=folders.state)


@functools.lru_cache(maxsize=1)
def _splits(recipe: Recipe, sources: tuple[str, ...]) -> Splits:
    """Read the data, once for all fits that a process runs in a row."""
    return load(recipe, sources)


def _nothing(count: int) -> pl.Series:
    return pl.Series([None] * count, dtype=pl.Float64)


def _measure(
    test: Dataset,
    lists: Lists,
    first_scores: Float[np.ndarray, " R"],
    second_scores: Sequence[Float[np.ndarray, " C"]],
) -> dict[str, Float[np.ndarray, " N"]]:
    """Return every metric of all test queries, NDCG by both ideals."""
    keys = sort_keys(np.concatenate(second_scores), lists.rows, first_scores)
    in_reach = np.zeros(test.rows, dtype=bool)
    in_reach[lists.rows] = True
    ndcgs = [f"ndcg@{k}" for k in NDCG_AT]
    full, truncated = (
        JudgedLists(test.labels, test.offsets, kept=of_ideal, gains=test.gains, highest=highest_gain(test, test.gains))
        for of_ideal in (None, in_reach)
    )
    of_reach = truncated.measure(ndcgs, keys)
    return full.measure((*ndcgs, *OTHERS), keys) | {f"{name}{TRUNCATED}": of_reach[name] for name in ndcgs}


def _anomaly(
    splits: Splits, train_scores: Float[np.ndarray, " R"], test_scores: Float[np.ndarray, " S"], seed: int
) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` anomaly score of every test query, by a forest fitted on the training queries."""
    fitted = fit_anomaly(splits.train, train_scores, seed=seed)
    if fitted is None:
        raise RecipeError("the anomaly score looks at numeric features, and these data have none")
    aggregates = Aggregates(splits.train.schema, 0)
    score = AnomalyScore(aggregates, open_forest(fitted.graph, aggregates.numeric, columns=1, name="anomaly score"))
    return np.array(
        [score.of(features, test_scores[splits.test.slice(n)]) for n, (features, _) in enumerate(splits.test.lists())]
    )


def tuned_lambdamart(spec: LambdaMart, splits: Splits, file: Path, *, seed: int) -> LambdaMart:
    """Return LambdaMART with the settings found on these data; each fit chooses the number of trees.

    Args:
        spec: Budget of the search, and the list-relative columns that LambdaMART sees in it.
        splits: Data of the fold.
        file: File for the settings that the search finds; its journal is in the same folder.
        seed: Seed of the search.
    """
    if not file.exists():
        widened = relative.widened(splits, relative.candidates(splits.train.schema, kinds_of(spec)))
        search = lambdamart.search_settings(
            widened.train, widened.valid, spec, seed=seed, journal=file.with_suffix(".journal"), prune=True
        )
        write_json(file, LambdaMartSettings.model_validate(search.values).model_dump(mode="json"))
    settings = LambdaMartSettings.model_validate_json(file.read_bytes())
    return spec.model_copy(update={"settings": settings, "trials": 1})


def tuned_network(
    spec: NetworkSpec, splits: Splits, first: FittedFirstStage, file: Path, *, trials: int, seed: int, state: Path
) -> NetworkSpec:
    """Return a network with the settings found on these data.

    Args:
        spec: Network whose own settings are the first trial.
        splits: Data of the fold.
        first: First stage whose best candidates the network reranks.
        file: File for the settings that the search finds; its journal is in the same folder.
        trials: Number of settings to try.
        seed: Seed of the search and its fits.
        state: Folder for the checkpoint of the current trial.
    """
    if not file.exists():
        journal = file.with_suffix(".journal")
        search = search_network(spec, splits, first, trials=trials, seed=seed, journal=journal, state=state)
        write_json(file, search.values)
    return with_values(spec, read_object(file))
