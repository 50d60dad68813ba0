"""Bundles judged on new labelled rows: list by list as the service ranks them, in bounded memory.

The protocol is that of a fit's report: candidates in a random order, equal scores share their ranks, the same metrics
and intervals. TREC files come in beside a bundle, and go out.
"""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking import bundle
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.metrics import HIGHEST_GAIN, EvalProtocol, dcg, gains_of, measure
from listwright.training.cluster import cores, side_by_side
from listwright.training.data.cells import names_in
from listwright.training.data.letor.fast import MAX_LABEL
from listwright.training.data.sources import check_exists
from listwright.training.data.tables.columns import row_weights, whole_labels
from listwright.training.data.tables.frames import Table, listed
from listwright.training.data.tables.judged import read_judged_metadata
from listwright.training.evaluation.evaluate import HEADLINE, METRICS, Evaluation, check_complete
from listwright.training.evaluation.intervals import FEWEST
from listwright.training.progress import SILENT, Progress
from listwright.training.scoring.frames import LETOR_LABEL, FileRows, batches, columns_of, files_of, is_table
from listwright.training.scoring.run import parts
from listwright.training.scoring.worker import lists_of, loaded, rankings_of

MOST_SEGMENTS = 50
"""Values of a column that are segments of their own: those with the most lists."""

OTHERS, MISSING = "(others)", "(missing)"
"""The segment of all other values, and that of lists without a value."""

INPUT_ORDER = "input order"


@dataclass(frozen=True, slots=True)
class Judging:
    """The options of a judgement.

    Args:
        bundles: one, or two of which the second is compared with the first.
        data: a file or a folder, as of :class:`listwright.training.scoring.job.Job`; rows of a query stand together.
        qid, label: columns of a table; judged rows name theirs themselves, and LETOR text has places for them.
        weight: column with the weight of a row; a query counts as the mean of its rows. None: all alike.
        doc: column with the candidate's id in TREC files; None for its number in the list, from 1.
        by: columns whose values are segments.
        strategy: as in a request.
        run: a TREC run that is compared with the bundle.
        qrels: TREC labels, in place of a column; a candidate that they do not name has label 0.
        trec: folder for the labels and a run of each bundle.
    """

    bundles: tuple[Path, ...]
    data: Path
    qid: str | None = None
    label: str | None = None
    weight: str | None = None
    doc: str | None = None
    by: tuple[str, ...] = ()
    strategy: str = "auto"
    run: Path | None = None
    qrels: Path | None = None
    trec: Path | None = None


class Segment(NamedTuple):
    """Lists with one value in a column.

    Args:
        column, value: which.
        lists: how many.
        means: of each compared ranker, in their order.
        estimate: the gain, or the only ranker's mean, with its interval: 95 % for all segments together.
    """

    column: str
    value: str
    lists: int
    means: tuple[float, ...]
    estimate: tuple[float, float, float]


class Gate(NamedTuple):
    """A bound: of the gain where rankers are compared, else of the mean.

    Args:
        metric: one of :data:`listwright.training.evaluation.evaluate.METRICS`.
        least: the bound.
    """

    metric: str
    least: float


def parse_gate(text: str) -> Gate:
    """Return the gate of a text such as ``ndcg@10 >= -0.002``.

    Raises:
        ValueError: naming what is expected.
    """
    parsed = re.fullmatch(r"\s*([a-z@0-9]+)\s*>=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*", text)
    if parsed is None:
        raise ValueError(f"{text!r}: expected a metric, >= and a number, such as 'ndcg@10 >= -0.002'")
    if parsed[1] not in METRICS:
        raise ValueError(f"{text!r}: there is no metric {parsed[1]!r}; expected {', '.join(METRICS)}")
    if not math.isfinite(float(parsed[2])):
        raise ValueError(f"{text!r}: expected a finite number")
    return Gate(parsed[1], float(parsed[2]))


@dataclass(frozen=True)
class Judgement:
    """The result.

    Args:
        evaluation: values of every list, by ranker: input order, first stages, bundles, a run.
        compared: the ranker that is judged; or two, of which the second is compared with the first.
        values: by column of :attr:`Judging.by`, of every list.
        rows: how many.
        notes: what a person should know of the data.
    """

    evaluation: Evaluation
    compared: tuple[str, ...]
    values: Mapping[str, Sequence[str]]
    rows: int
    notes: tuple[str, ...] = ()

    def estimate(self, metric: str) -> tuple[float, float, float]:
        """Return the gain of the second ranker over the first, or the mean of the only one, with its 95 % interval."""
        return _estimate(self.evaluation, metric, self.compared, 1)

    @cached_property
    def _members(self) -> list[tuple[str, str, Int[np.ndarray, " M"]]]:
        """Return column, value and lists of every segment."""
        members = []
        for column, values in self.values.items():
            array = np.array(values, dtype=object)
            own = [value for value, count in Counter(values).most_common(MOST_SEGMENTS) if count >= FEWEST]
            members += [(column, value, np.flatnonzero(array == value)) for value in own]
            rest = np.flatnonzero([value not in own for value in values])
            if len(rest):
                members.append((column, OTHERS, rest))
        return members

    def segments(self, metric: str) -> list[Segment]:
        """Return the segments of all columns: values with at least :data:`FEWEST` lists, and all others together."""
        segments, weights = [], self.evaluation.weights
        for column, value, lists in self._members:
            values = {name: {metric: self.evaluation.values[name][metric][lists]} for name in self.compared}
            part = replace(self.evaluation, values=values, weights=None if weights is None else weights[lists])
            means = tuple(part.mean(part.values[name][metric], part.protocol) for name in self.compared)
            estimate = _estimate(part, metric, self.compared, len(self._members))
            segments.append(Segment(column, value, len(lists), means, estimate))
        return segments

    def breaches(self, gate: Gate) -> list[str]:
        """Return where a gate is broken, as text; empty where it holds.

        All lists together break it by their mean, or by being fewer than :data:`FEWEST` that count. A segment of at
        least so many breaks it where its whole interval is below the bound: among many, the mean of one is below by
        chance alone.
        """
        every = np.arange(self.evaluation.queries)
        if self._counted(gate.metric, every) < FEWEST:
            return [f"{self._counted(gate.metric, every)} lists that count are too few: give at least {FEWEST}"]
        mean, *_ = self.estimate(gate.metric)
        breaches = [f"all lists {mean:.4f}"] if mean < gate.least else []
        for segment, (_, _, lists) in zip(self.segments(gate.metric), self._members, strict=True):
            mean, low, high = segment.estimate
            if self._counted(gate.metric, lists) >= FEWEST and high < gate.least:
                breaches.append(f"{segment.column} = {segment.value} {mean:.4f} [{low:.4f}, {high:.4f}]")
        return breaches

    def _counted(self, metric: str, lists: Int[np.ndarray, " M"]) -> int:
        """Return how many lists count: those with a weight, and a value that the protocol does not drop."""
        values = self.evaluation.values[self.compared[0]][metric][lists]
        counts = (
            np.ones(len(lists), dtype=bool) if self.evaluation.protocol.empty_queries != "drop" else ~np.isnan(values)
        )
        weights = self.evaluation.weights
        return int(counts.sum() if weights is None else (counts & (weights[lists] > 0.0)).sum())


def facts_of(judgement: Judgement) -> dict[str, Any]:
    """Return everything that was measured as JSON values."""
    evaluation = judgement.evaluation
    gains = {metric: _named(judgement.estimate(metric)) for metric in METRICS if len(judgement.compared) > 1}
    return {
        "lists": evaluation.queries,
        "rows": judgement.rows,
        "empty_queries": evaluation.empty_queries,
        "protocol": str(evaluation.protocol),
        "interval": "95 % percentile bootstrap over queries; those of segments hold together",
        "rankers": list(evaluation.rankers),
        "compared": list(judgement.compared),
        "metrics": [metric.model_dump() for metric in evaluation.metrics()],
        **({"gains": gains} if gains else {}),
        "segments": [
            {**segment._asdict(), "estimate": _named(segment.estimate)} for segment in judgement.segments(HEADLINE)
        ],
        "notes": list(judgement.notes),
    }


def _named(estimate: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip(("mean", "low", "high"), estimate, strict=True))


def _estimate(
    evaluation: Evaluation, metric: str, compared: tuple[str, ...], intervals: int
) -> tuple[float, float, float]:
    if len(compared) == 1:
        return evaluation.mean_with_interval(metric, compared[0], intervals=intervals)
    return evaluation.gain(metric, compared[1], compared[0], intervals=intervals)


def judge(options: Judging, *, jobs: int | None = None, progress: Progress = SILENT) -> Judgement:
    """Rank every list by one or two bundles, and measure the rankings.

    Args:
        options: what is judged.
        jobs: parts at a time; None for all cores.
        progress: how far it is.

    Raises:
        RecipeError: if options do not fit each other, or the data.
        DataError: if data, a run or labels cannot be used; with the line.
        BundleError: if there is no such bundle.
        ScoringError: if a stage fails: an earlier stage's figures must not pass for its.
    """
    manifests = [bundle.read_manifest(folder) for folder in options.bundles]
    options = _with_columns(options)
    if options.trec is not None and options.trec.exists():
        raise RecipeError(f"{options.trec} exists already: choose another --trec, or delete it")
    for file, kind in ((options.run, "run"), (options.qrels, "qrels")):
        if file is not None:
            read_trec(file, kind)  # here, so that a fault of it is the first thing that is said
    protocol = manifests[0].protocol.model_copy(update={"weighted": options.weight is not None, "ties": "shared"})
    works = [
        _Work(name, folder, options, protocol, with_others=n == 0)
        for n, (name, folder) in enumerate(zip(_names(manifests), options.bundles, strict=True))
    ]
    notes = []
    if len({manifest.protocol.model_copy(update={"weighted": False}) for manifest in manifests}) > 1:
        notes.append(f"the bundles were measured under different protocols: here both have that of {works[0].name}")
    files_of(options.data, notes.append)
    with tempfile.TemporaryDirectory() as folder:
        judged = [
            _judged(work, manifest, Path(folder), jobs, progress)
            for work, manifest in zip(works, manifests, strict=True)
        ]
        judgement = _together(works, judged, notes)
        if options.trec is not None:
            _publish(Path(folder), options.trec, works)
    return judgement


def _names(manifests: Sequence[Manifest]) -> list[str]:
    """Return NAME/VERSION of each bundle; of two that have the same, the second is told apart."""
    names = [f"{manifest.name}/{manifest.version}" for manifest in manifests]
    return names if len(set(names)) == len(names) else [names[0], f"{names[0]}-other"]


def _with_columns(options: Judging) -> Judging:
    """Return the options with the columns that the data name themselves.

    Raises:
        RecipeError: if a column is missing among the options, or named without need.
    """
    first = files_of(options.data)[0]
    if not is_table(first):
        named = {"--label": options.label, "--weight": options.weight, "--doc": options.doc, "--by": options.by or None}
        wrong = [option for option, value in named.items() if value is not None]
        if wrong:
            raise RecipeError(f"{wrong[0]}: LETOR text has no columns with names; leave it out, or give a table")
        return replace(options, label=LETOR_LABEL)
    facts = read_judged_metadata(first) or {"qid": None, "label": None}
    options = replace(options, qid=options.qid or facts["qid"], label=options.label or facts["label"])
    if options.qrels is not None:
        if options.label is not None and facts["label"] is None:
            raise RecipeError("--label and --qrels both give labels: leave one of them out")
        return replace(options, label=None)
    if options.label is None:
        raise RecipeError("name the column of labels with --label, or a TREC file of labels with --qrels")
    return options


@dataclass(frozen=True, slots=True)
class _Work:
    """What a worker needs to know.

    Args:
        name: of the bundle, for people.
        bundle: its folder.
        options: of the judgement.
        protocol: of the figures.
        with_others: whether input order and a TREC run are measured, too.
        qid: column of query ids.
        highest: gain of the best label.
    """

    name: str
    bundle: Path
    options: Judging
    protocol: EvalProtocol
    with_others: bool
    qid: str = ""
    highest: float = HIGHEST_GAIN


class _Part(NamedTuple):
    """The values of some lists.

    Args:
        values: by ranker and metric.
        weights: of the lists; None: all alike.
        segments: by column.
        rows: how many.
        gain: of the best label.
        ranked, judged: candidates that the run ranks, and that the TREC labels name.
    """

    values: dict[str, dict[str, Float[np.ndarray, " N"]]]
    weights: Float[np.ndarray, " N"] | None
    segments: dict[str, list[str]]
    rows: int
    gain: float
    ranked: int
    judged: int


def _judged(work: _Work, manifest: Manifest, folder: Path, jobs: int | None, progress: Progress) -> list[_Part]:
    """Return the parts of all lists; a label above those before changes ERR, and all is measured again."""
    judged = _measured(work, manifest, folder, jobs, progress)
    top = max(part.gain for part in judged)
    if top > work.highest and work.protocol.gains is None:
        judged = _measured(replace(work, highest=top), manifest, folder, jobs, progress)
    return judged


def _measured(work: _Work, manifest: Manifest, folder: Path, jobs: int | None, progress: Progress) -> list[_Part]:
    options, schema = work.options, manifest.feature_schema
    needed = [name for name in (options.label, options.weight, options.doc, *options.by) if name is not None]
    qid, rows, _ = batches(options.data, schema, options.qid, needed)
    work = replace(work, qid=qid)
    first = files_of(options.data)[0]
    if is_table(first):
        _check_names(columns_of(first), work, schema, progress)
    task = progress.begin(f"Ranking {options.data.name} by {work.name}, rows")
    done, judged, running = 0, list[_Part](), deque[Future[_Part]]()

    def take() -> None:
        nonlocal done
        judged.append(running.popleft().result())
        done += judged[-1].rows
        task.reach(done)

    try:
        with side_by_side(None, jobs, local_jobs=cores()) as (workers, at_a_time):
            for part in parts(_checked(rows, work), qid):
                path = folder / f"{part.number:07}.arrow"
                part.rows.write_ipc(path, compression="uncompressed")
                running.append(workers.submit(judge_part, str(path), part.number, work))
                if len(running) > at_a_time:  # one waits, so that no worker does; more would fill the memory
                    take()
            while running:
                take()
    except BrokenProcessPool as error:
        raise RecipeError(
            "a worker was stopped from outside, perhaps for want of memory: try again with --jobs 1"
        ) from error
    task.end(done)
    return judged


def _checked(rows: Iterator[FileRows], work: _Work) -> Iterator[FileRows]:
    """Yield the rows; raise where a label or weight cannot be one, with the line."""
    options = work.options
    for batch in rows:

        def fault(column: pl.Series, expected: str, row: int | None = None, at: FileRows = batch) -> DataError:
            return DataError(at.path, expected, line=None if row is None else at.lines[row], column=column.name)

        if options.qrels is None:
            gains, labels = work.protocol.gains, whole_labels(batch.rows[str(options.label)], fault)
            if gains is not None and int(labels.max(initial=0)) >= len(gains):
                expected = f"the bundle has gains for labels up to {len(gains) - 1}; found {int(labels.max())}"
                raise fault(batch.rows[str(options.label)], expected, int(labels.argmax()))
        if options.weight is not None:
            row_weights(batch.rows[options.weight], fault)
        yield batch


def _check_names(table: Table, work: _Work, schema: FeatureSchema, progress: Progress) -> None:
    """Raise RecipeError unless the data have the columns that are named, and the bundle's features."""
    options, names = work.options, table.frame.columns
    if options.qrels is None:
        table.find_column(options.label, "--label")
    for option, columns in (("--weight", (options.weight,)), ("--doc", (options.doc,)), ("--by", options.by)):
        for name in columns:
            if name is not None:
                table.find_column(name, option)
    for option, name in (*(("--by", name) for name in options.by), ("--label", options.label)):
        if name in schema.index:
            raise RecipeError(
                f"{option} {name}: is a feature of {work.name}, read as the bundle needs it: give a copy of the column "
                "another name"
            )
    for name in options.by:
        if name in (options.label, work.qid):
            raise RecipeError(f"--by {name}: holds the {'labels' if name == options.label else 'query ids'}")
    absent = [feature for feature in schema.features if feature.name not in names]
    lacking = [f.name for f in absent if f.default is None and not f.missing_in_training]
    if lacking:
        others = [name for name in names if name not in (*schema.names, work.qid, options.label)]
        raise DataError(
            table.path,
            f"lacks {listed(lacking)}, which {work.name} was fitted with; columns that are no features of it: "
            f"{listed(others) or 'none'}",
        )
    if absent:
        progress.remark(
            f"the data lack {listed([f.name for f in absent])}: defaults or missing values stand there for {work.name}"
        )


def judge_part(path: str, number: int, work: _Work) -> _Part:
    """Rank and measure the lists of a part; write them as TREC files beside it where that is asked for.

    Args:
        path: of the part's rows, which are deleted.
        number: of the part.
        work: what is to be done.
    """
    options, protocol = work.options, work.protocol
    served, rows = loaded(str(work.bundle)), pl.read_ipc(path)
    Path(path).unlink()
    lists = lists_of(rows, served.manifest.feature_schema, work.qid)
    offsets, qids = lists.offsets, [str(qid) for qid in lists.qids]
    of_rows = np.repeat(np.arange(len(qids)), np.diff(offsets))
    docs = _docs(rows, options, qids, of_rows, offsets)
    labels = _labels(rows, options, qids, of_rows, docs, protocol.gains)
    top = float(gains_of(labels, protocol.gains).max())
    weights = None
    if options.weight is not None:
        weights = np.add.reduceat(
            row_weights(rows[options.weight], Table(options.data, rows).fault), offsets[:-1]
        ) / np.diff(offsets)
    # row order may know the labels, and at a stage's cutoff it chooses among candidates that are equal in all
    order = np.lexsort((np.random.default_rng(number).random(rows.height), of_rows))
    features = lists.features.to_numpy() if isinstance(lists.features, pl.DataFrame) else lists.features
    shuffled = lists._replace(features=np.ascontiguousarray(features[order], dtype=np.float32), order=None)
    run = None if options.run is None or not work.with_others else read_trec(options.run, "run")
    values: dict[str, dict[str, list[float]]] = {}
    text, ranked = list[str](), 0
    for n, ranking in enumerate(rankings_of(shuffled, served.reranker, options.strategy)):
        check_complete(ranking, qids[n])
        here = order[offsets[n] : offsets[n + 1]]
        scores = {work.name: ranking.sort_keys}
        if _has_more_stages(served.manifest, options.strategy):
            scores = {f"{work.name}, first stage": ranking.first_stage_scores, **scores}
        if work.with_others:
            scores = {INPUT_ORDER: -(here - offsets[n]).astype(np.float64), **scores}
        scored = np.isfinite(ranking.scores) if protocol.ideal == "truncated" else None
        for ranker, keys in scores.items():
            by_metric = values.setdefault(ranker, {metric: [] for metric in METRICS})
            for metric, own_values in by_metric.items():
                highest = max(work.highest, top)
                own_values.append(
                    measure(metric, keys, labels[here], kept=scored, gains=protocol.gains, highest=highest)
                )
        if run is not None:
            own = run.get(qids[n], {})
            keys = np.array([own.get(docs[row], -np.inf) for row in here])
            ranked += int(np.isfinite(keys).sum())
            by_metric = values.setdefault(str(options.run), {metric: [] for metric in METRICS})
            for metric, own_values in by_metric.items():
                own_values.append(_measure_retrieved(metric, keys, labels[here], protocol, max(work.highest, top)))
        if options.trec is not None:
            text += _run_lines(qids[n], [docs[here[place]] for place in ranking.order], work.name)
    if options.trec is not None:
        _write_lines(Path(path).with_suffix(f".{'first' if work.with_others else 'second'}.run"), text)
        if work.with_others:
            lines = [
                f"{_word(qids[n])} 0 {_word(doc)} {y}"
                for n, doc, y in zip(of_rows.tolist(), docs, labels.tolist(), strict=True)
            ]
            _write_lines(Path(path).with_suffix(".qrels"), lines)
    arrays = {
        ranker: {metric: np.array(of) for metric, of in by_metric.items()} for ranker, by_metric in values.items()
    }
    segments = {name: _of_lists(rows[name], offsets, qids) for name in (options.by if work.with_others else ())}
    named = 0
    if options.qrels is not None:
        qrels = read_trec(options.qrels, "qrels")
        named = sum(doc in qrels.get(qids[n], {}) for n, doc in zip(of_rows.tolist(), docs, strict=True))
    return _Part(arrays, weights, segments, rows.height, top, ranked, named)


def _measure_retrieved(
    metric: str, scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], protocol: EvalProtocol, highest: float
) -> float:
    """Compute a metric of a run as TREC's tools do: a candidate that it lacks, of score -inf, is not retrieved."""
    retrieved = np.where(np.isfinite(scores), labels, 0)
    value = measure(metric, scores, retrieved, gains=protocol.gains, highest=highest)
    if metric == "map":
        return value * float((retrieved > 0).sum()) / max(1, int((labels > 0).sum()))
    if not metric.startswith("ndcg@"):
        return value
    ideals = [
        dcg(np.sort(y)[::-1], cutoff=int(metric.partition("@")[2]), gains=protocol.gains) for y in (retrieved, labels)
    ]
    return float(np.nan_to_num(value)) * ideals[0] / ideals[1] if ideals[1] > 0.0 else float("nan")


def _docs(
    rows: pl.DataFrame,
    options: Judging,
    qids: Sequence[str],
    of_rows: Int[np.ndarray, " R"],
    offsets: Int[np.ndarray, " O"],
) -> list[str]:
    """Return the id of each candidate in TREC files.

    Raises:
        DataError: if one is missing, or another candidate of the list has it; with the query.
    """
    if options.doc is None:
        return [str(n + 1) for n in np.arange(rows.height) - offsets[of_rows]]
    docs: list[str | None] = names_in(rows[options.doc]).to_list()
    known = set[tuple[int, str]]()
    for n, doc in zip(of_rows.tolist(), docs, strict=True):
        if doc is None or (n, doc) in known:
            what = "has a candidate without an id" if doc is None else f"has candidate {doc!r} twice"
            raise DataError(
                options.data,
                f"query {qids[n]} {what}: give each candidate of a list an id of its own",
                column=options.doc,
            )
        known.add((n, doc))
    return [str(doc) for doc in docs]


def _has_more_stages(manifest: Manifest, strategy: str) -> bool:
    """Return whether answers may be those of another ranker than the first stage."""
    if strategy == "auto":
        return manifest.strategy != "first_stage" or manifest.router is not None
    return strategy != "first_stage"


def _labels(
    rows: pl.DataFrame,
    options: Judging,
    qids: Sequence[str],
    of_rows: Int[np.ndarray, " R"],
    docs: Sequence[str],
    gains: Sequence[float] | None,
) -> Int[np.ndarray, " R"]:
    if options.qrels is None:
        return whole_labels(rows[str(options.label)], Table(options.data, rows).fault)
    qrels = read_trec(options.qrels, "qrels")
    judged = (qrels.get(qids[n], {}).get(doc, 0) for n, doc in zip(of_rows.tolist(), docs, strict=True))
    labels = np.array([max(0, int(label)) for label in judged], dtype=np.int32)
    if gains is not None and labels.max() >= len(gains):
        expected = f"the bundle has gains for labels up to {len(gains) - 1}; found {labels.max()}"
        raise DataError(options.qrels, expected)
    return labels


def _of_lists(column: pl.Series, offsets: Int[np.ndarray, " O"], qids: Sequence[str]) -> list[str]:
    """Return the text of a column for each list, which must have one."""
    names = names_in(column).fill_null(MISSING)
    changes = np.flatnonzero(names[1:].ne(names[:-1]).to_numpy()) + 1
    inside = np.setdiff1d(changes, offsets)
    if len(inside):
        row, query = int(inside[0]), qids[int(np.searchsorted(offsets, inside[0], side="right")) - 1]
        raise RecipeError(
            f"--by {column.name}: query {query} has {names[row - 1]} and {names[row]}; a segment is a value that all "
            "candidates of a list share"
        )
    values: list[str] = names.gather(offsets[:-1]).to_list()
    return values


def _together(works: Sequence[_Work], judged: Sequence[list[_Part]], notes: list[str]) -> Judgement:
    options, protocol = works[0].options, works[0].protocol
    values: dict[str, dict[str, Float[np.ndarray, " N"]]] = {}
    for own in judged:
        for ranker in own[0].values:
            values[ranker] = {m: np.concatenate([part.values[ranker][m] for part in own]) for m in METRICS}
    first = judged[0]
    weights = None if options.weight is None else np.concatenate([part.weights for part in first])
    if weights is not None and not weights.any():
        raise DataError(options.data, "all weights are 0: no query counts; raise some", column=options.weight)
    compared = (*(work.name for work in works), *(() if options.run is None else (str(options.run),)))
    evaluation = Evaluation(values, protocol, weights)
    rows, remedy = sum(part.rows for part in first), "check the query ids, and name the candidates' ids with --doc"
    for path, kind, known in (
        (options.run, "ranks", sum(part.ranked for part in first)),
        (options.qrels, "judges", sum(part.judged for part in first)),
    ):
        if path is None:
            continue
        if known == 0:
            raise DataError(path, f"{kind} none of the candidates: {remedy}")
        others = sum(map(len, read_trec(path, "run" if kind == "ranks" else "qrels").values())) - known
        if known < rows or others:
            notes.append(f"{path} {kind} {known:,} of {rows:,} candidates, and {others:,} that the data lack")
    if evaluation.empty_queries == evaluation.queries:
        raise DataError(
            options.data, "no list has a relevant candidate, one with a label above 0: nothing can be judged"
        )
    by = {name: [value for part in first for value in part.segments[name]] for name in options.by}
    return Judgement(evaluation, compared, by, rows, tuple(notes))


TrecKind = Literal["run", "qrels"]

_TREC: dict[TrecKind, tuple[int, int, int, str]] = {
    "run": (6, 2, 4, "query, Q0, candidate, rank, score, name"),
    "qrels": (4, 2, 3, "query, 0, candidate, label"),
}
"""Fields of a line, which of them are the candidate and its value, and what they are."""


@cache
def read_trec(path: Path, kind: TrecKind) -> dict[str, dict[str, float]]:
    """Read a TREC run, or TREC labels: values by query id and candidate id.

    Raises:
        DataError: if the file is not there, or a line is not of this kind, or names a candidate again.
    """
    check_exists(str(path))
    fields, doc, value, expected = _TREC[kind]
    values: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                words = line.split()
                if not words:
                    continue
                if len(words) != fields:
                    raise DataError(path, f"expected {expected}; found {len(words)} fields", line=number)
                if words[doc] in values.setdefault(words[0], {}):
                    raise DataError(path, f"query {words[0]} has candidate {words[doc]} again", line=number)
                values[words[0]][words[doc]] = _number(path, number, words[value], whole=kind == "qrels")
        except UnicodeDecodeError as error:
            raise DataError(path, f"is no text in UTF-8: expected {expected}") from error
    if not values:
        raise DataError(path, f"has no lines: expected {expected}")
    return values


def _number(path: Path, line: int, word: str, *, whole: bool) -> float:
    try:
        number = math.nan if "_" in word else float(int(word)) if whole else float(word)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (whole and number > MAX_LABEL):
        expected = f"a whole number up to {MAX_LABEL}" if whole else "a finite number"
        raise DataError(path, f"expected {expected}; found {word!r}", line=line)
    return number


def _run_lines(qid: str, docs: Sequence[str], name: str) -> Iterator[str]:
    """Yield a list's lines of a run; the score is a whole number, which every tool reads exactly."""
    for rank, doc in enumerate(docs, start=1):
        yield f"{_word(qid)} Q0 {_word(doc)} {rank} {len(docs) - rank} {_word(name)}"


def _word(text: str) -> str:
    if not text or text.split() != [text]:
        raise RecipeError(f"--trec: {text!r} is empty or has a blank, which TREC files cannot hold")
    return text


def _write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _publish(parts_folder: Path, out: Path, works: Sequence[_Work]) -> None:
    """Join the parts' TREC files to a folder, in full or not at all."""
    whole = out.with_name(f".{out.name}.new")
    shutil.rmtree(whole, ignore_errors=True)  # of a command that was killed here
    whole.mkdir()
    files = {"labels.qrels": "*.qrels"} | {
        f"{work.name.replace('/', '-')}.run": f"*.{'first' if work.with_others else 'second'}.run" for work in works
    }
    for name, pattern in files.items():
        with (whole / name).open("wb") as to:
            for path in sorted(parts_folder.glob(pattern)):
                with path.open("rb") as part:
                    shutil.copyfileobj(part, to)
    whole.rename(out)
