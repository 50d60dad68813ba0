"""``listwright.training.Qilcm``: the run of ``listwright fit`` as a scikit-learn estimator, on arrays and frames."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError, RecipeError, ScoringError
from listwright.ranking.features import mostly_unknown
from listwright.ranking.manifest import Manifest, to_json
from listwright.ranking.plain_file import MOST_JSON_VALUES, from_json
from listwright.ranking.relative import RelativeKind
from listwright.ranking.stages import MANIFEST
from listwright.training.console.command import PlainConsole
from listwright.training.data import memory, split
from listwright.training.data.dataset import Dataset, Remedies, categories_in
from listwright.training.data.memory import Values
from listwright.training.evaluation.protocol import per_query
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.workspace import check_names
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, Recipe
from listwright.training.recipe.data import Default
from listwright.training.recipe.model import QilcmSpec, RankLoss, model_like

UNSAVED = "library"
"""Name of a recipe, and a bundle, that has none of its own."""

_UNSAVED = (UNSAVED, "1")
"""Name and version of a bundle that has none yet."""

_DERIVED = ("manifest_", "reranker_", "report_", "feature_names_in_", "n_features_in_")
"""Attributes that are derived from the files of the bundle."""

AUTO = "auto"
"""The model option under which the default is chosen by comparing."""

_FIRST_STAGE = ("trials", "max_trees", "folds", "relative")

_QILCM = tuple(name for name in QilcmSpec.model_fields if name not in ("kind", "variant", "relative"))

_GROUP = (
    "say with qid which query each row belongs to, one id per row; from sizes: np.repeat(np.arange(len(sizes)), sizes)"
)

_WEIGHT = "say with sample_weight how much each row counts; a query counts as the mean of its rows"

_HELD_OUT = (
    "fit holds queries out itself, in parts=; for a split of your own, listwright fit takes "
    "--data train=FILE valid=FILE test=FILE"
)

_START = (
    "scores of another model go in as a column of X; as the first stage, listwright fit takes --first-stage-column COL"
)

_CATEGORIES = "name these columns with categorical=, a parameter of Qilcm"

_PATIENCE = "training stops by itself, see patience= and max_trees=, parameters of Qilcm"

_INSTEAD = {
    **dict.fromkeys(("group", "groups", "group_id"), _GROUP),
    "group_weight": _WEIGHT,
    "goals": "fit ranks for y alone; listwright fit takes further goals, --goal COL",
    **dict.fromkeys(("init_score", "base_margin"), _START),
    **dict.fromkeys(("categorical_feature", "cat_features"), _CATEGORIES),
    **dict.fromkeys(("callbacks", "early_stopping_rounds"), _PATIENCE),
}


class Qilcm(BaseEstimator):  # type: ignore[misc]
    """A LightGBM first stage and a second stage that reranks, QILCM or a rival, in one bundle.

    Queries are divided into ``parts`` parts: one is held out for the report, one stops the training, the others train.
    All figures and scores come from the sealed bundle, through the code that serves it. If the second stage ranks the
    validation queries worse than the first, the scores are those of the first stage.

    Args:
        model: Second stage, one of :data:`listwright.training.recipe.model.MODEL_NAMES`; or ``auto``, which compares
            those of :class:`listwright.training.recipe.config.Choice` and answers with the simplest ranker unless the
            gain of a second stage is statistically significant.
        encoder_width, hidden, rank_loss, precision, first_stage_score, cutoff, dropout, weight_decay, batches,
        batch_size, learning_rate, max_epochs, patience, ndcg_at: see :class:`listwright.training.recipe.model.Network`.
        query_norm, confusion_weight, confusion_pairs: Settings of QILCM and its variants, see
            :class:`listwright.training.recipe.model.QilcmSpec`; other models ignore them.
        trials, max_trees, folds, monotone, relative: Settings of the first stage, see
            :class:`listwright.training.recipe.config.LambdaMart`.
        :class:`listwright.training.recipe.config.LambdaMart`.
        parts: Number of parts, at least 3; 5 is the papers' 60/20/20.
        categorical: Columns to treat as categories whatever they hold; text that is no numbers always is.
        defaults: Values by name of a feature, for frames and requests that lack it: a number, or one of its categories.
        gains: Gain of label 0, 1 and so on, see :class:`listwright.training.recipe.data.AnyData`.
        drop_constant: Whether columns with one value in all training rows become no features, see
            :class:`listwright.training.recipe.data.AnyData`.
        minutes: Bound on the time of a fit; 0 for no bound, None for twelve LightGBM fits on the same data, at least a
            minute. With a bound, a clock decides what is tried, and ``report_`` says what.
        seed: Seed of everything random.
        device: ``auto``, which takes CUDA where there is one, or the name of a torch device.
        verbose: Whether progress is printed.

    Attributes:
        manifest_: Manifest of the bundle: schema, recipe, held-out metrics.
        report_: ``report.json`` of the bundle, see ``docs/report.md``.
        reranker_: Reranker of the bundle.
        files_: Files of the bundle by name.
        feature_names_in_: Names of all columns of X, also of those that became no features; f1, f2 ... where X was an
            array.
        n_features_in_: Number of these columns.
    """

    def __init__(
        self,
        *,
        model: str = "qilcm",
        encoder_width: int = 100,
        hidden: tuple[int, ...] = (256, 128),
        rank_loss: RankLoss = "per_query",
        precision: Literal["float32", "bfloat16"] = "float32",
        query_norm: Literal["stable", "paper"] = "stable",
        confusion_weight: float = 0.01,
        confusion_pairs: int | Literal["all"] | None = 80,
        first_stage_score: bool = True,
        cutoff: int = 100,
        dropout: float = 0.0,
        weight_decay: float = 0.0,
        batches: Literal["similar", "random"] = "similar",
        batch_size: int = 80,
        learning_rate: float = 1e-3,
        max_epochs: int = 100,
        patience: int = 15,
        ndcg_at: int = 10,
        trials: int = 20,
        max_trees: int = 1000,
        folds: int = 5,
        monotone: Mapping[str, int] | None = None,
        relative: Literal["auto", "none"] | tuple[RelativeKind, ...] = "auto",
        parts: int = 5,
        categorical: tuple[str, ...] = (),
        defaults: Mapping[str, Default] | None = None,
        gains: tuple[float, ...] | None = None,
        drop_constant: bool = True,
        minutes: float | None = 0.0,
        seed: int = 0,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.encoder_width = encoder_width
        self.hidden = hidden
        self.rank_loss = rank_loss
        self.precision = precision
        self.query_norm = query_norm
        self.confusion_weight = confusion_weight
        self.confusion_pairs = confusion_pairs
        self.first_stage_score = first_stage_score
        self.cutoff = cutoff
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.batches = batches
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.patience = patience
        self.ndcg_at = ndcg_at
        self.trials = trials
        self.max_trees = max_trees
        self.folds = folds
        self.monotone = monotone
        self.relative = relative
        self.parts = parts
        self.categorical = categorical
        self.defaults = defaults
        self.gains = gains
        self.drop_constant = drop_constant
        self.minutes = minutes
        self.seed = seed
        self.device = device
        self.verbose = verbose

    def fit(self, X: Values, y: Values, qid: Values = None, sample_weight: Values = None, **others: object) -> Qilcm:
        """Fit both stages, seal them as a bundle, and measure it on the queries held out.

        Args:
            X: ``(R, D)`` one row per candidate: a NumPy array, a pandas or polars frame, a sparse matrix of SciPy, a
                list of rows. NaN, None and NA are missing values.
            y: ``(R,)`` or ``(R, 1)`` relevance labels, whole numbers from 0.
            qid: ``(R,)`` or ``(R, 1)`` query ids of any type; rows of a query need not stand together.
            sample_weight: ``(R,)`` or ``(R, 1)`` weight of each row, a query as the mean of its rows; None if all are
                alike.
            others: Keywords of other rankers (``group``, ``eval_set``), which are refused.

        Raises:
            DataError: if a value, or the split, cannot be learned from; names it, its place and the remedy.
            RecipeError: if a parameter is wrong, or for a keyword of another ranker.
        """
        refuse("fit", others)
        recipe, budget = self._recipe(), Budget(self.minutes)
        data = memory.read_judged(X, y, qid, categorical=tuple(self.categorical), sample_weight=sample_weight)
        rng = np.random.default_rng(recipe.seed)
        splits = split.by_query(data, recipe.data.split, fold=recipe.fold, rng=rng, source="X, y, qid")
        remedies = Remedies("leave it out of X", keep_constant="drop_constant=False")
        notes = memory.notes_of(X, qid, data.schema)
        splits = replace(splits, remedies=remedies, rounding=memory.rounding(X, data.schema), notes=notes)
        from listwright.training.pipeline.run import run  # noqa: PLC0415 - torch: seconds that a mistake need not wait for

        console = PlainConsole(quiet=not self.verbose, highlight=False)
        with tempfile.TemporaryDirectory(prefix="listwright-") as folder:
            out = Path(folder, *_UNSAVED)
            command = f"{self!r}.fit(X, y, qid)"
            run(recipe, splits, out, device=self.device, command=command, budget=budget, console=console)
            return self._read(bundle.load(out))

    def predict(self, X: Values, qid: Values = None) -> Float[np.ndarray, " R"]:
        """Return the scores that order the candidates of each query, as the service would order them.

        Args:
            X: ``(R, D)`` as in :meth:`fit`; a frame's columns are found by name, an array's by position. A frame may
                lack features that have a default, or that were missing in training.
            qid: ``(R,)`` as in :meth:`fit`.

        Returns:
            ``(R,)`` float64 in row order: higher is better, comparable within one query only. Candidates below the
            cutoff, which the second stage does not score, are 1, 2 ... below the lowest that it does, in first-stage
            order.

        Raises:
            NotFittedError: before :meth:`fit`.
            SchemaMismatchError: if the columns are not those that were fitted.
            DataError: if a value cannot be used.
            ScoringError: if a stage fails: an earlier stage's answer must not silently pass for its.

        Warns:
            UserWarning: where the bundle does not know most of a column's categories, or float32 merges its numbers.
        """
        check_is_fitted(self)
        data, order = self._read_candidates(X, qid)
        coarse = map(str, memory.rounding(X, data.schema, tuple(self.feature_names_in_)))
        for sentence in (*mostly_unknown(categories_in(data), data.schema).values(), *coarse):
            warnings.warn(sentence, stacklevel=2)
        scores = np.empty(data.rows)
        for n, (features, _) in enumerate(data.lists()):
            ranking = self.reranker_.rerank(CandidateList(features))
            if ranking.degraded:
                raise ScoringError(f"query {data.qids[n]}: {ranking.reason}")
            below = np.isnan(ranking.scores)
            row, keys = ranking.scores.copy(), ranking.sort_keys[below]
            row[below] = np.nanmin(row) - 1.0 - (keys.max(initial=0.0) - keys)
            scores[order[data.slice(n)]] = row
        return scores

    def score(
        self,
        X: Values,
        y: Values,
        qid: Values = None,
        sample_weight: Values = None,
        *,
        metric: str | None = None,
        **others: object,
    ) -> float:
        """Return the weighted mean of a metric over queries; a query without a relevant candidate counts 0.

        Args:
            X, y, qid, sample_weight: See :meth:`fit`.
            metric: Metric of :meth:`listwright.ranking.metrics.JudgedLists.measure`, such as ``map`` or ``err@10``;
                None for NDCG at ``ndcg_at``.

        Raises:
            RecipeError: for a keyword of another ranker, as in :meth:`fit`, or an unknown metric.
            DataError: if a label has no gain.
        """
        refuse("score", others)
        scores = self.predict(X, qid)
        data, order = self._read_candidates(X, qid)
        judged = memory.with_labels(data, order, y, sample_weight).with_gains(self.manifest_.protocol.gains, "y")
        try:
            values = per_query(judged, scores[order], metric or f"ndcg@{self.ndcg_at}")
        except ValueError as error:
            raise RecipeError(str(error)) from error
        return float(np.average(np.nan_to_num(values), weights=judged.query_weights))

    def save(self, path: str | Path) -> Path:
        """Write the bundle that ``listwright serve`` serves; no pickle.

        Args:
            path: ``.../NAME/VERSION``; must not exist.

        Raises:
            NotFittedError: before :meth:`fit`.
            RecipeError: if the path cannot name a bundle.
            BundleError: if there is something already.
        """
        check_is_fitted(self)
        out = Path(path)
        _save_as(out, self.manifest_, self.files_, self.report_)
        return out

    @classmethod
    def load(cls, path: str | Path) -> Qilcm:
        """Return a fitted estimator from a bundle, whoever wrote it: this class or ``listwright fit``.

        Its parameters are those of the bundle's recipe, where this class has them.

        Raises:
            BundleError: if the bundle is not whole.
        """
        source = bundle.load(Path(path))
        return cls(**parameters_of(source.manifest.recipe, frozenset(cls._get_param_names())))._read(source)

    def _read_candidates(self, X: Values, qid: Values) -> tuple[Dataset, Int[np.ndarray, " R"]]:
        return memory.read_unjudged(X, qid, self.manifest_.feature_schema, tuple(self.feature_names_in_))

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and, once fitted, the files of the bundle, from which the rest is restored."""
        state = dict(super().__getstate__())
        if "files_" in state:
            state["files_"] = {**self.files_, MANIFEST: to_json(self.manifest_).encode()}
        return {name: value for name, value in state.items() if name not in _DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the estimator of that state, its bundle checked as :meth:`load` does.

        Raises:
            BundleError: if the bundle is not whole.
        """
        super().__setstate__(dict(state))
        if "files_" in state:
            files = dict(state["files_"])
            source = bundle.load_files(Path("bundle of the pickled Qilcm"), files)
            self._took(source, {file.name: files[file.name] for file in source.manifest.files})

    def _read(self, source: Bundle) -> Qilcm:
        """Take over a bundle; its folder is not needed any more."""
        return self._took(source, {file.name: (source.path / file.name).read_bytes() for file in source.manifest.files})

    def _took(self, source: Bundle, files: dict[str, bytes]) -> Qilcm:
        self.manifest_ = source.manifest
        self.reranker_ = source.reranker
        self.reranker_.read_file = files.__getitem__  # for explanations: the folder may be gone by then
        self.files_ = files
        try:
            self.report_: dict[str, Any] = from_json(self.files_.get("report.json", b"{}"), MOST_JSON_VALUES)
        except ValueError as error:
            raise BundleError(source.path / "report.json", f"no JSON: {error}") from error
        columns = list(source.manifest.feature_schema.names)
        for place, name in self.report_.get("dropped", []):
            columns.insert(place, name)
        self.feature_names_in_ = np.array(columns, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _recipe(self) -> Recipe:
        """Return the recipe that a table of the same columns would need."""
        return recipe_of(self.get_params())


def recipe_of(parameters: Mapping[str, Any]) -> Recipe:
    """Return the recipe that a table of the same columns would need.

    Raises:
        RecipeError: if a parameter is wrong.
    """
    values = {
        "name": UNSAVED,
        "about": "fitted on arrays in memory",
        "data": {
            "kind": "table",
            "qid": "qid",
            "label": "y",
            "categorical": tuple(parameters["categorical"]),
            "defaults": _by_name(parameters["defaults"]),
            "gains": parameters["gains"],
            "drop_constant": parameters["drop_constant"],
            "split": {"parts": parameters["parts"]},
        },
        "first_stage": {"kind": "lambdamart", "monotone": _by_name(parameters["monotone"])}
        | {name: parameters[name] for name in (*_FIRST_STAGE, "ndcg_at")},
        "model": {"kind": "qilcm"} | {name: parameters[name] for name in _QILCM},
        "seed": parameters["seed"],
        "minutes": parameters["minutes"],
    }
    recipe = config.of(values, "training.Qilcm")
    if parameters["model"] == AUTO:
        return config.changed(recipe, {"choice": Choice()})
    return config.changed(recipe, {"model": model_like(parameters["model"], recipe.model)})


def parameters_of(recipe: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return a recipe's values of the estimator's parameters, as far as they are known."""
    model, data = recipe["model"], recipe["data"]
    first = recipe["first_stage"]
    values = {**first, **data, **data.get("split", {}), **model, "seed": recipe["seed"]}
    values["minutes"] = recipe.get("minutes", 0.0)
    values["relative"] = first.get("relative", "none")
    values |= {"defaults": data.get("defaults") or None, "monotone": first.get("monotone") or None}
    variant = model.get("variant", "full")
    named_model = model.get("kind", "qilcm") + ("" if variant == "full" else f"-{variant.lower()}")
    values["model"] = named_model if recipe.get("choice") is None else AUTO
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return {name: value for name, value in (values | lists).items() if name in known}


def _by_name(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return values by name, NumPy's scalars as Python's."""
    plain = (values or {}).items()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in plain}


def refuse(method: str, keywords: Iterable[str]) -> None:
    """Refuse the first of the keywords, if there is any.

    Args:
        method: Name of the method that got the keywords, as ``fit``.
        keywords: Keywords that it does not take.

    Raises:
        RecipeError: for a keyword of LightGBM's, XGBoost's or CatBoost's rankers; with the alternative.
        TypeError: for any other, as Python does.
    """
    for keyword in keywords:
        instead = _HELD_OUT if keyword.startswith("eval_") else _INSTEAD.get(keyword)
        if instead is None:
            raise TypeError(f"Qilcm.{method}() got an unexpected keyword argument {keyword!r}")
        raise RecipeError(f"Qilcm.{method} does not take {keyword}: {instead}")


def _save_as(out: Path, manifest: Manifest, contents: Mapping[str, bytes], report: Mapping[str, Any]) -> None:
    """Seal and publish the files of a bundle as ``.../NAME/VERSION``."""
    check_names(out)
    name, version = out.absolute().parent.name, out.name
    files = dict(contents)
    if "repeat" in report:
        from listwright.training.reporting.report import renamed  # noqa: PLC0415 - with the page

        pages = renamed(files["report.json"].decode(), f"{name}/{version}")
        files |= {file: text.encode() for file, text in pages.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{version}.", ignore_cleanup_errors=True) as own:
        folder = Path(own) / out.name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_bytes(content)
        bundle.seal(folder, manifest.model_copy(update={"name": name, "version": version}), files)
        bundle.publish(folder, out)
