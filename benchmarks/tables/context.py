"""Which part of the list's context pays on the public tables, and what it may say about who was asked.

Networks stand on LightGBM with the columns that a default fit takes, or on LightGBM alone as in the paper, with the
recipe's settings; lists are split by query, or with those of a person held together. The composition of lists is what
LightGBM gains by counting a candidate's category in its list, and in another list drawn at random. All are compared on
the test queries, paired.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from benchmarks.tables.comparison import gain
from benchmarks.tables.runs import Key, Row, ignored, read_split
from listwright.ranking.features import UNKNOWN_CODE
from listwright.ranking.relative import KINDS, RelativeColumn
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.relative import candidates, widened_part
from listwright.training.pipeline.choice import better_first_stage
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.model import DcmSpec, DlcmSpec, MlpSpec, NetworkSpec, Qilcm2Spec, QilcmSpec
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.loop import predict, query_ndcg
from listwright_lab.science.drawing import GREY, page, plain

FIRST = "first stage"

COUNTS, SHUFFLED = "counts of its list", "counts of another list"

COMPARED = (
    ("qilcm", FIRST),
    ("qilcm", "mlp"),
    ("qilcm", "qilcm without attention"),
    ("qilcm", "qilcm without normalisation"),
    ("qilcm with confusion loss", "qilcm"),
    ("qilcm2", "qilcm"),
    ("qilcm2", FIRST),
    ("dlcm", "qilcm"),
    ("dcm", "qilcm"),
    ("mlp", FIRST),
    (COUNTS, FIRST),
    (SHUFFLED, FIRST),
)
"""Rankers, and what each is compared with."""

ON_COLUMNS, ALONE, COMPOSITION = "networks on the columns", "networks on LightGBM", "composition"

COLUMNS = "LightGBM with list-relative columns"

RANKERS = {
    "a network that scores each candidate alone": (False, "mlp"),
    "QILCM": (False, "qilcm"),
    COLUMNS: (True, FIRST),
    "QILCM on the columns": (True, "qilcm"),
}
"""Rankers of the figure: whether on the columns, and which."""

COLOURS = ("#768390", "#8957e5", "#2f81f7", "#db61a2")
"""Colours of these in the figure."""

Values = Float[np.ndarray, " N"]

Rows = Sequence[Mapping[int, Row]]

PARTS = (ON_COLUMNS, ALONE, f"{ON_COLUMNS}, persons apart", f"{ALONE}, persons apart", COMPOSITION)
"""Parts to measure; "persons apart": no person has lists in two of training, validation and test queries."""


PERSONS_APART = ("qilcm", "mlp")
"""Networks that are fitted where persons are apart."""

COMPOSED = ("airline", "car", "modecanada", "swissmetro")
"""Tables whose lists differ in the categories of their candidates."""


def specs() -> Mapping[str, NetworkSpec]:
    """Return the networks by name: the recipe's QILCM, the paper's ablations of it, and other families."""
    qilcm = config.load("table").model
    assert isinstance(qilcm, QilcmSpec)
    return {
        "qilcm": qilcm,
        "qilcm with confusion loss": qilcm.model_copy(update={"confusion_weight": 0.01}),
        "qilcm without attention": qilcm.model_copy(update={"variant": "V1"}),
        "qilcm without normalisation": qilcm.model_copy(update={"variant": "V3"}),
        "qilcm2": Qilcm2Spec(),
        "dlcm": DlcmSpec(),
        "dcm": DcmSpec(),
        "mlp": MlpSpec(hidden=(64,), learning_rate=qilcm.learning_rate),
    }


def can_measure(folder: Path, key: Key) -> bool:
    """Return whether a table has what a part needs: persons, or categories that vary from list to list."""
    table, _, part = key
    if part != COMPOSITION:
        return "persons apart" not in part or bool(ignored(folder / f"{table}.parquet"))
    return table in COMPOSED


def measure(table: Path, split: int, part: str) -> Row:
    """Return NDCG of every test query by ranker, and what else there is to say.

    Args:
        table: Parquet with ``qid`` and ``label``.
        split: Number of the split, from 1.
        part: Part of :data:`PARTS`.
    """
    if part == COMPOSITION:
        return measure_composition(read_split(table, split))
    where, _, apart = part.partition(", ")
    networks = {name: spec for name, spec in specs().items() if not apart or name in PERSONS_APART}
    return measure_networks(read_split(table, split, persons_apart=bool(apart)), networks, alone=where == ALONE)


def measure_networks(splits: Splits, networks: Mapping[str, NetworkSpec], *, alone: bool, seed: int = 0) -> Row:
    """Return NDCG of every test query, and CPU seconds, by network.

    Args:
        splits: Lists that are fitted and measured on.
        networks: Networks by name.
        alone: Whether the networks stand on LightGBM without list-relative columns.
        seed: Seed of all fits.
    """
    spec = LambdaMart(trials=1, folds=2)
    with tempfile.TemporaryDirectory() as state:
        if alone:
            alone_spec = spec.model_copy(update={"relative": "none"})
            first = first_stage.fit(alone_spec, splits, seed=seed, state=Path(state))
        else:
            specs = (spec.model_copy(update={"relative": kinds}) for kinds in ("none", KINDS))
            plain, relative = (first_stage.fit(each, splits, seed=seed, state=Path(state)) for each in specs)
            first, _, _ = better_first_stage(plain, relative, splits, spec.ndcg_at)
    scores = first.scores_of(splits.test)
    wide = widened_part(splits.test, first.relative)
    values = {FIRST: lambdamart.query_ndcg(splits.test, scores, spec.ndcg_at)}
    seconds = {}
    for name, network in networks.items():
        began = time.process_time()
        fitted = second_stage.fit(network, splits, first, seed=seed)
        assert fitted is not None
        seconds[name] = round(time.process_time() - began, 1)
        data = wide if fitted.spec.relative else splits.test
        lists = lists_for(fitted.spec, data, scores)
        values[name] = query_ndcg(predict(fitted.module, lists), lists, data, scores, spec.ndcg_at)
    return {"columns": [column.name for column in first.relative], "cpu_s": seconds, "values": _rounded(values)}


def measure_composition(splits: Splits, seed: int = 0) -> Row:
    """Return NDCG of every test query by LightGBM without counts, with those of its list and those of another list.

    Returns:
        Also ``auc``: how well the counts of a training list tell each binary feature that its candidates share, out of
        fold, by logistic regression. 0.5 is chance.
    """
    spec = LambdaMart(trials=1, folds=2, relative="none")
    columns = candidates(splits.train.schema, ("count",))
    values = {}
    for name in (FIRST, COUNTS, SHUFFLED):
        parts = splits
        if name != FIRST:
            rng = np.random.default_rng(seed) if name == SHUFFLED else None
            train, valid, test = (with_counts(part, columns, rng) for part in (splits.train, splits.valid, splits.test))
            parts = replace(splits, train=train, valid=valid, test=test)
        with tempfile.TemporaryDirectory() as state:
            fitted = first_stage.fit(spec, parts, seed=seed, state=Path(state))
        values[name] = lambdamart.query_ndcg(parts.test, fitted.scores_of(parts.test), spec.ndcg_at)
    return {"values": _rounded(values), "auc": _auc_of_shared(splits.train, columns)}


def with_counts(data: Dataset, columns: Sequence[RelativeColumn], rng: np.random.Generator | None) -> Dataset:
    """Return lists with the number of candidates that have the candidate's category.

    Args:
        data: Lists.
        columns: Columns of kind ``count``.
        rng: Generator that draws the list whose candidates are counted; None counts those of its own list.
    """
    wide = widened_part(data, columns)
    other = np.arange(len(data)) if rng is None else rng.permutation(len(data))
    query, features = np.repeat(np.arange(len(data)), data.lengths), np.array(wide.features)
    for place, column in enumerate(columns, start=len(data.schema)):
        codes = features[:, data.schema.index[column.feature]].astype(int)
        features[:, place] = np.where(codes == UNKNOWN_CODE, np.nan, _counts(codes, query)[other[query], codes])
    return replace(wide, features=features)


def _counts(codes: Int[np.ndarray, " R"], query: Int[np.ndarray, " R"]) -> Float[np.ndarray, "N C"]:
    """Return ``(N, C)``: candidates of each list with each code."""
    counts = np.zeros((int(query[-1]) + 1, int(codes.max()) + 1))
    np.add.at(counts, (query, codes), 1.0)
    return counts


def _auc_of_shared(data: Dataset, columns: Sequence[RelativeColumn]) -> dict[str, float]:
    query, starts = np.repeat(np.arange(len(data)), data.lengths), data.offsets[:-1]
    places = [data.schema.index[column.feature] for column in columns]
    features = np.asarray(data.features)
    counts = np.hstack([_counts(features[:, place].astype(int), query) for place in places])
    result = {}
    for place, name in enumerate(data.schema.names):
        shared = features[starts, place]
        if place not in places and len(np.unique(shared)) == 2 and (features[:, place] == shared[query]).all():
            target = shared == shared.max()
            out_of_fold = cross_val_score(LogisticRegression(max_iter=1000), counts, target, cv=5, scoring="roc_auc")
            result[name] = round(float(out_of_fold.mean()), 3)
    return result


def _rounded(values: Mapping[str, Values]) -> Row:
    return {name: [round(float(value), 6) for value in ndcg] for name, ndcg in values.items()}


def compare(rows: Iterable[Row]) -> Row:
    """Return for each table and part the means and the paired gains, with p-values adjusted over all (Holm 1979).

    The p-value of a gain is two-sided, by a normal mean over the test queries of all splits.
    """
    by_part: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_part.setdefault((row["entrant"], row["table"]), []).append(row)
    tables, tests = list[Row](), list[Row]()
    for (part, table), splits in sorted(by_part.items(), key=lambda item: (PARTS.index(item[0][0]), item[0][1])):
        names = list(splits[0]["values"])
        values = {name: np.concatenate([row["values"][name] for row in splits]) for name in names}
        gains = []
        for ranker, over in COMPARED:
            if ranker not in values or over not in values:
                continue
            differences = values[ranker] - values[over]
            error = differences.std(ddof=1) / np.sqrt(len(differences))
            p = float(2.0 * norm.sf(abs(differences.mean()) / error)) if error > 0.0 else 1.0
            gains.append({"ranker": ranker, "over": over, "gain": gain(differences), "p": p})
        tests += gains
        tables.append(
            {
                "part": part,
                "table": table,
                "splits": len(splits),
                "test_queries": len(values[FIRST]),
                "ndcg@10": {name: round(float(ndcg.mean()), 4) for name, ndcg in values.items()},
                **{
                    figure: {
                        name: round(float(np.mean([row[figure][name] for row in splits])), 3)
                        for name in splits[0][figure]
                    }
                    for figure in ("cpu_s", "auc")
                    if splits[0].get(figure)
                },
                "gains": gains,
            }
        )
    adjusted, ordered = 0.0, sorted(tests, key=lambda test: test["p"])
    for place, test in enumerate(ordered):
        adjusted = max(adjusted, min(1.0, (len(ordered) - place) * test["p"]))
        test["p_holm"], test["p"] = float(f"{adjusted:.3g}"), float(f"{test['p']:.3g}")
    return {"over_lightgbm": gains_over_lightgbm(by_part), "tables": tables}


def gains_over_lightgbm(by_part: Mapping[tuple[str, str], Sequence[Row]]) -> list[Row]:
    """Return what each ranker gains over LightGBM alone, on the splits that both parts have, by table.

    Args:
        by_part: Rows by part and table.
    """
    result = list[Row]()
    for (part, table), rows in by_part.items():
        alone, _, apart = part.partition(", ")
        beside = by_part.get((part.replace(ALONE, ON_COLUMNS), table), ())
        splits = sorted({row["split"] for row in rows} & {row["split"] for row in beside})
        if alone != ALONE or not splits:
            continue
        of_split = [{row["split"]: row["values"] for row in part_rows} for part_rows in (rows, beside)]

        def values(on_columns: bool, name: str, of: Rows = of_split, at: Sequence[int] = splits) -> Values:
            return np.concatenate([of[on_columns][split][name] for split in at])

        lightgbm = values(False, FIRST)
        gains = {title: gain(values(*ranker) - lightgbm) for title, ranker in RANKERS.items()}
        where = {"table": table, "persons_apart": bool(apart), "splits": splits, "test_queries": len(lightgbm)}
        result.append({**where, "lightgbm": round(float(lightgbm.mean()), 4), "gains": gains})
    return sorted(result, key=lambda row: (row["persons_apart"], -row["gains"][COLUMNS][0]))


def draw(result: Row, path: Path) -> Path:
    """Draw what each ranker gains over LightGBM alone, the table with the largest gain by the columns on top."""
    rows = [row for row in result["over_lightgbm"] if not row["persons_apart"]][::-1]
    with page(path, 8.0, 1.1 + 0.55 * len(rows), salt="context") as figure:
        axes = figure.subplots()
        axes.axvline(0.0, color=GREY, linewidth=0.8)
        for place, (title, colour) in enumerate(zip(RANKERS, COLOURS, strict=True)):
            means, lows, highs = np.array([row["gains"][title] for row in rows]).T
            heights = np.arange(len(rows)) + 0.3 - 0.2 * place
            errors = np.stack([means - lows, highs - means])
            axes.errorbar(means, heights, xerr=errors, fmt="o", markersize=5, color=colour, label=title)
        axes.set_yticks(range(len(rows)), [f"{row['table']}\n{row['test_queries']:,} lists" for row in rows])
        axes.set(xlabel="gain in NDCG@10 over LightGBM that scores each candidate alone, with 95 % intervals")
        plain(axes)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, labelcolor=GREY)
    return path
