"""Bundles judged on new labelled rows: list by list as the service ranks them, in bounded memory.

The protocol is that of a fit's report: candidates in a random order, equal scores share their ranks, the same metrics
and intervals. TREC files come in beside a bundle, and go out.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_folder
from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.metrics import HIGHEST_GAIN, EvalProtocol, gains_of
from listwright.ranking.reranker import Reranker
from listwright.training.console.progress import SILENT, Progress
from listwright.training.data.cells import names_in
from listwright.training.data.sources import check_kind
from listwright.training.data.tables.columns import amounts, whole_labels
from listwright.training.data.tables.frames import Table
from listwright.training.data.tables.judged import read_judged_metadata
from listwright.training.evaluation.gates import Judgement, goal_metric
from listwright.training.evaluation.protocol import (
    HEADLINE,
    METRICS,
    Evaluation,
    RankedRows,
    check_complete,
    goal_lists,
)
from listwright.training.evaluation.reliability import StatedProbabilities, join_lists
from listwright.training.evaluation.trec import (
    Retrieved,
    TrecLines,
    measure_retrieved,
    qrels_lines,
    read_trec,
    retrieve,
    run_lines,
    write_lines,
)
from listwright.training.scoring.frames import LETOR_LABEL, FileRows, batches, columns_of, files_of, is_table
from listwright.training.scoring.run import check_features, map_parts
from listwright.training.scoring.worker import PartLists, lists_of, load_bundle, rankings_of

MISSING = "(missing)"
"""Name of the segment of lists without a value."""

INPUT_ORDER = "input order"


@dataclass(frozen=True, slots=True)
class Judging:
    """The options of a judgement.

    Args:
        bundles: Folder of one bundle, or of two of which the second is compared with the first.
        data: File or folder, as for :class:`listwright.training.scoring.job.Job`; rows of a query stand together.
        qid, label: Columns of a table; judged rows name theirs themselves, and LETOR text has places for them.
        weight: Column with the weight of a row; a query counts as the mean of its rows. None if all are alike.
        doc: Column with the candidate's id in TREC files; None for its number in the list, from 1.
        by: Columns whose values are segments.
        strategy: Strategy, as in a request.
        run: TREC run that is compared with the bundle.
        qrels: TREC labels, in place of a column; a query that they lack is left out, and a candidate has label 0.
        trec: Folder for the labels and a run of each bundle.
        shared_only: Whether only candidates that the run ranks, too, are measured.
        goals: Columns with values from 0, for an NDCG by each.
        weights: Weight of each goal, as in a request; bundles of one goal rank without.
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
    shared_only: bool = False
    goals: tuple[str, ...] = ()
    weights: Mapping[str, float] | None = None


def judge(options: Judging, *, jobs: int | None = None, progress: Progress = SILENT) -> Judgement:
    """Rank every list by one or two bundles, and measure the rankings.

    Args:
        options: Options of the judgement.
        jobs: Number of parts at a time; None for all cores.
        progress: Receiver of the progress.

    Raises:
        RecipeError: if options do not fit each other, or the data.
        DataError: if data, a run or labels cannot be used; with the line.
        BundleError: if there is no such bundle.
        ScoringError: if a stage fails: an earlier stage's figures must not pass for its.
    """
    manifests = [bundle.read_manifest(folder) for folder in options.bundles]
    options = _with_columns(options)
    _check_goals(options, manifests)
    if options.trec is not None and options.trec.exists():
        raise RecipeError(f"{options.trec} exists already: choose another --trec, or delete it")
    read_trec.cache_clear()
    for file, kind in ((options.run, "run"), (options.qrels, "qrels")):
        if file is not None:
            read_trec(file, kind)  # here, so that a fault of it is the first thing that is said
    protocol = manifests[0].protocol.model_copy(update={"weighted": options.weight is not None, "ties": "shared"})
    highest = max(protocol.gains or (HIGHEST_GAIN,))
    works = [
        _Work(name, folder, options, protocol, with_others=n == 0, highest=highest)
        for n, (name, folder) in enumerate(zip(_names(manifests), options.bundles, strict=True))
    ]
    notes = []
    if len({manifest.protocol.model_copy(update={"weighted": False}) for manifest in manifests}) > 1:
        notes.append(f"the bundles were measured under different protocols: here both have that of {works[0].name}")
    files_of(options.data, notes.append)
    with tempfile.TemporaryDirectory() as folder:
        pairs = zip(works, manifests, strict=True)
        judged = [_judged(work, manifest, Path(folder), jobs, progress) for work, manifest in pairs]
        judgement = _together(works, judged, notes)
        if options.trec is not None:
            _publish(Path(folder), options.trec, works)
    return judgement


def _check_goals(options: Judging, manifests: Sequence[Manifest]) -> None:
    """Raise RecipeError for options of goals that need what is not there."""
    if options.weights is not None and not any(manifest.goals for manifest in manifests):
        raise RecipeError("--weights: the bundle has one goal: leave them out, or fit one with --goal")
    if options.goals and options.run is not None:
        raise RecipeError("--goal and --run: documents that only a run has are without values; leave one of them out")
    if options.label in options.goals:
        raise RecipeError(f"--goal {options.label}: the NDCG by the label is measured in any case; leave it out")


def _names(manifests: Sequence[Manifest]) -> list[str]:
    """Return NAME/VERSION of each bundle; of two that have the same, the second is told apart."""
    names = [f"{manifest.name}/{manifest.version}" for manifest in manifests]
    return names if len(set(names)) == len(names) else [names[0], f"{names[0]}-other"]


def _with_columns(options: Judging) -> Judging:
    """Return the options with the columns that the data name; raise RecipeError for one that lacks, or is too many."""
    first = files_of(options.data)[0]
    if not is_table(first):
        check_kind(first)
        column_options = {
            "--label": options.label,
            "--weight": options.weight,
            "--doc": options.doc,
            "--by": options.by or None,
            "--goal": options.goals or None,
        }
        wrong = [option for option, value in column_options.items() if value is not None]
        if wrong:
            raise RecipeError(f"{wrong[0]}: LETOR text has no columns with names; leave it out, or give a table")
        return replace(options, label=LETOR_LABEL)
    facts = read_judged_metadata(first, labelled=True) or {"qid": None, "label": None}
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
    """Task of a worker: a bundle, and the options; for the first bundle also input order and a TREC run."""

    name: str
    bundle: Path
    options: Judging
    protocol: EvalProtocol
    with_others: bool
    highest: float
    qid: str = ""


class _Part(NamedTuple):
    """The values of some lists: by ranker and metric, and by column; the gain of their best label; probabilities."""

    values: dict[str, dict[str, Float[np.ndarray, " N"]]]
    weights: Float[np.ndarray, " N"] | None
    segments: dict[str, list[str]]
    rows: int
    gain: float
    counts: Counter[str]
    stated: StatedProbabilities | None = None


def _judged(work: _Work, manifest: Manifest, folder: Path, jobs: int | None, progress: Progress) -> list[_Part]:
    """Return the parts of all lists; a label above those before changes ERR, and all is measured again."""
    judged = _measured(work, manifest, folder, jobs, progress)
    top = max(part.gain for part in judged)
    if top > work.highest:
        judged = _measured(replace(work, highest=top), manifest, folder, jobs, progress)
    return judged


def _measured(work: _Work, manifest: Manifest, folder: Path, jobs: int | None, progress: Progress) -> list[_Part]:
    options, schema = work.options, manifest.feature_schema
    columns = options.label, options.weight, options.doc, *options.by, *options.goals
    qid, rows, _ = batches(options.data, schema, options.qid, [name for name in columns if name is not None])
    work = replace(work, qid=qid)
    first = files_of(options.data)[0]
    if is_table(first):
        table = columns_of(first)
        _check_names(table, work, schema)
        check_features(first, table.frame.columns, manifest, [qid, str(options.label)], progress)
    title = f"Ranking {options.data.name} by {work.name}, rows"
    checked = _checked(rows, work)
    return map_parts(partial(_judge_part, work=work), checked, qid, folder, title, jobs=jobs, progress=progress)


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
            amounts(batch.rows[options.weight], fault)
        for goal in options.goals:
            amounts(batch.rows[goal], fault, "the value of a goal")
        yield batch


def _check_names(table: Table, work: _Work, schema: FeatureSchema) -> None:
    """Raise RecipeError unless the data have the columns that are named."""
    options = work.options
    if options.qrels is None:
        table.find_column(options.label, "--label")
    of_lists, goals = [("--by", name) for name in options.by], [("--goal", name) for name in options.goals]
    for option, name in (("--weight", options.weight), ("--doc", options.doc), *of_lists, *goals):
        if name is not None:
            table.find_column(name, option)
    for option, name in (*of_lists, *goals, ("--label", options.label)):
        if name in schema.index:
            fault = f"is a feature of {work.name}, read as the bundle needs it"
            raise RecipeError(f"{option} {name}: {fault}: give a copy of the column another name")
    for name in options.by:
        if name in (options.label, work.qid):
            raise RecipeError(f"--by {name}: holds the {'labels' if name == options.label else 'query ids'}")


def _judge_part(path: str, number: int, work: _Work) -> _Part:
    """Rank and measure the lists of a file, which is deleted; where asked for, write TREC files beside it."""
    options, protocol = work.options, work.protocol
    served, rows = load_bundle(str(work.bundle)), pl.read_ipc(path)
    Path(path).unlink()
    qrels = None if options.qrels is None else read_trec(options.qrels, "qrels")
    run = None if options.run is None else read_trec(options.run, "run")
    counts = Counter[str]()
    lists = lists_of(rows, served.manifest.feature_schema, work.qid)
    docs = _docs(rows, options, lists)
    judged = _judged_lists(lists, docs, qrels, run if options.shared_only else None, counts)
    if not all(judged):
        of_judged = np.repeat(judged, np.diff(lists.offsets))
        rows, docs = rows.filter(of_judged), list(compress(docs, of_judged))
        if not docs:
            return _Part({}, None, {}, 0, 0.0, counts)
        lists = lists_of(rows, served.manifest.feature_schema, work.qid)
    offsets, qids = lists.offsets, [str(qid) for qid in lists.qids]
    labels, others = _labels(rows, options, lists, docs, protocol.gains)
    counts["judged elsewhere"] += sum(map(len, others))
    top = float(gains_of(np.concatenate([labels, *others]), protocol.gains).max(initial=work.highest))
    fault, weights = Table(options.data, rows).fault, None
    if options.weight is not None:
        weights = np.add.reduceat(amounts(rows[options.weight], fault), offsets[:-1]) / np.diff(offsets)
    # row order may know the labels, and at a stage's cutoff it chooses among candidates that are equal in all
    of_rows = np.repeat(np.arange(len(qids)), np.diff(offsets))
    order = np.lexsort((np.random.default_rng(number).random(rows.height), of_rows))
    features = np.ascontiguousarray(np.asarray(lists.features)[order], dtype=np.float32)
    shuffled = lists._replace(features=features, order=None)
    ends = zip(qids, offsets[:-1], offsets[1:], strict=True) if run is not None or options.trec is not None else ()
    own_labels = {qid: dict(zip(docs[at:end], labels[at:end].tolist(), strict=True)) for qid, at, end in ends}
    ranked, probability, text = _rank(shuffled, order, docs, served.reranker, work)
    shared, bounds = np.arange(rows.height), offsets
    if options.shared_only and run is not None:
        shared = np.flatnonzero([docs[row] in run[qids[n]] for row, n in zip(order, of_rows, strict=True)])
        bounds = np.concatenate([[0], np.cumsum(np.bincount(of_rows[shared]))])
    of_ideal = np.isfinite(ranked.scores[work.name])[shared] if protocol.ideal == "truncated" else None
    measure = partial(measure_retrieved, METRICS, gains=protocol.gains, highest=top)
    goals = {
        goal_metric(goal): goal_lists(amounts(rows[goal], fault)[order], offsets, of_ideal) for goal in options.goals
    }
    values = {
        ranker: measure(Retrieved(own[shared], labels[order][shared], bounds, others), of_ideal=of_ideal)
        | {metric: of_goal.measure((HEADLINE,), own)[HEADLINE] for metric, of_goal in goals.items()}
        for ranker, own in _sort_keys_by(work, served.manifest, ranked).items()
    }
    stated = None
    if not np.isnan(probability).any():
        of_lists = np.ones(len(qids)) if weights is None else weights
        stated = StatedProbabilities(np.diff(bounds), probability[shared], labels[order][shared] > 0, of_lists)
        values[work.name]["log_loss"] = stated.log_losses()
    if run is not None:
        values[str(options.run)] = measure(_retrieved_by_run(run, own_labels, qrels, options, counts))
    if options.trec is not None:
        write_lines(Path(path).with_suffix(f".{'first' if work.with_others else 'second'}.run"), text)
    if options.trec is not None and work.with_others:
        lines = qrels_lines(qids, own_labels.values() if qrels is None else [qrels[qid] for qid in qids])
        write_lines(Path(path).with_suffix(".qrels"), lines)
    segments = {name: _of_lists(rows[name], offsets, qids) for name in (options.by if work.with_others else ())}
    return _Part(values, weights, segments, rows.height, top, counts, stated)


def _rank(
    lists: PartLists, order: Int[np.ndarray, " R"], docs: Sequence[str], reranker: Reranker, work: _Work
) -> tuple[RankedRows, Float[np.ndarray, " R"], list[str]]:
    """Rank shuffled lists; return scores, probabilities (NaN where there are none), and lines of a TREC run."""
    options, rows = work.options, len(order)
    ranked, text = RankedRows(order, np.empty(rows), {work.name: np.empty(rows)}), list[str]()
    probability = np.full(rows, np.nan)
    rankings = rankings_of(
        lists,
        reranker,
        strategy=options.strategy,
        probability=reranker.calibration is not None,
        weights=None if reranker.goals is None else options.weights,
    )
    for qid, (begin, end), ranking in zip(map(str, lists.qids), pairwise(lists.offsets), rankings, strict=True):
        ranked.scores[work.name][begin:end] = check_complete(ranking, qid).scores
        ranked.first_scores[begin:end] = ranking.first_stage_scores
        if ranking.probability is not None:
            probability[begin:end] = ranking.probability
        if options.trec is not None:
            text += run_lines(qid, [docs[i] for i in order[begin:end][ranking.order]], work.name)
    return ranked, probability, text


def _sort_keys_by(work: _Work, manifest: Manifest, ranked: RankedRows) -> dict[str, Float[np.ndarray, " R"]]:
    keys = {work.name: ranked.sort_keys(work.name)}
    if _has_more_stages(manifest, work.options.strategy):
        keys = {f"{work.name}, first stage": ranked.first_scores, **keys}
    return {INPUT_ORDER: -ranked.order.astype(np.float64), **keys} if work.with_others else keys


def _retrieved_by_run(
    run: TrecLines,
    own_labels: Mapping[str, dict[str, int]],
    qrels: TrecLines | None,
    options: Judging,
    counts: Counter[str],
) -> Retrieved:
    """Return lists as a run ranks them; count the candidates that it shares, and those that only it has."""
    queries = []
    for qid, own in own_labels.items():
        of_run = run.get(qid, {})
        shared = [doc for doc in own if doc in of_run]
        counts["ranked"] += len(shared)
        counts["unknown"] += len(of_run) - len(shared)
        counts["equal scores"] += len(set(of_run.values())) < len(of_run)
        if options.shared_only:
            queries.append(({doc: of_run[doc] for doc in shared}, {doc: own[doc] for doc in shared}))
        else:
            queries.append((of_run, ({} if qrels is None else _labels_in(qrels, qid)) | own))
    return retrieve(queries)


def _labels_in(qrels: TrecLines, qid: str) -> dict[str, int]:
    return {doc: max(0, int(label)) for doc, label in qrels[qid].items()}


def _judged_lists(
    lists: PartLists, docs: Sequence[str], qrels: TrecLines | None, shared_with: TrecLines | None, counts: Counter[str]
) -> list[bool]:
    """Return which lists have labels and candidates to measure; count the others."""
    if qrels is None and shared_with is None:
        return [True] * len(lists.qids)
    judged = []
    for qid, (begin, end) in zip(map(str, lists.qids), pairwise(lists.offsets.tolist()), strict=True):
        labelled = qrels is None or qid in qrels
        ranked = shared_with is None or not shared_with.get(qid, {}).keys().isdisjoint(docs[begin:end])
        counts["unjudged lists"] += not labelled
        counts["unshared lists"] += labelled and not ranked
        if qrels is not None:
            counts["judged"] += len(qrels.get(qid, {}).keys() & set(docs[begin:end]))
        judged.append(labelled and ranked)
    return judged


def _docs(rows: pl.DataFrame, options: Judging, lists: PartLists) -> list[str]:
    """Return the id of each candidate in TREC files; raise DataError for one that is missing, or twice in a list."""
    lengths = np.diff(lists.offsets)
    if options.doc is None:
        return [str(n + 1) for n in np.arange(rows.height) - np.repeat(lists.offsets[:-1], lengths)]
    docs: list[str | None] = names_in(rows[options.doc]).to_list()
    known = set[tuple[int, str]]()
    for n, doc in zip(np.repeat(np.arange(len(lengths)), lengths).tolist(), docs, strict=True):
        if doc is None or (n, doc) in known:
            what = "has a candidate without an id" if doc is None else f"has candidate {doc!r} twice"
            remedy = "give each candidate of a list an id of its own"
            raise DataError(options.data, f"query {lists.qids[n]} {what}: {remedy}", column=options.doc)
        known.add((n, doc))
    return [str(doc) for doc in docs]


def _has_more_stages(manifest: Manifest, strategy: str) -> bool:
    """Return whether answers may be those of another ranker than the first stage."""
    if strategy == "auto":
        return manifest.strategy != "first_stage" or manifest.router is not None
    return strategy != "first_stage"


def _labels(
    rows: pl.DataFrame, options: Judging, lists: PartLists, docs: Sequence[str], gains: Sequence[float] | None
) -> tuple[Int[np.ndarray, " R"], list[Int[np.ndarray, " M"]]]:
    """Return the label of each candidate, and those of each list's judged documents that are no candidates of it."""
    if options.qrels is None:
        nothing = np.empty(0, dtype=np.int32)
        return whole_labels(rows[str(options.label)], Table(options.data, rows).fault), [nothing] * len(lists.qids)
    qrels, labels, others = read_trec(options.qrels, "qrels"), list[int](), list[Int[np.ndarray, " M"]]()
    for qid, (begin, end) in zip(map(str, lists.qids), pairwise(lists.offsets.tolist()), strict=True):
        judged = _labels_in(qrels, qid)
        if gains is not None and max(judged.values()) >= len(gains):
            expected = f"the bundle has gains for labels up to {len(gains) - 1}; found {max(judged.values())}"
            raise DataError(options.qrels, expected)
        labels += [judged.pop(doc, 0) for doc in docs[begin:end]]
        others.append(np.array([] if options.shared_only else list(judged.values()), dtype=np.int32))
    return np.array(labels, dtype=np.int32), others


def _of_lists(column: pl.Series, offsets: Int[np.ndarray, " O"], qids: Sequence[str]) -> list[str]:
    """Return the text of a column for each list, which must have one."""
    names = names_in(column).fill_null(MISSING)
    changes = np.flatnonzero(names[1:].ne(names[:-1]).to_numpy()) + 1
    inside = np.setdiff1d(changes, offsets)
    if len(inside):
        row, query = int(inside[0]), qids[int(np.searchsorted(offsets, inside[0], side="right")) - 1]
        fault = f"query {query} has {names[row - 1]} and {names[row]}"
        raise RecipeError(f"--by {column.name}: {fault}; a segment is a value that all candidates of a list share")
    values: list[str] = names.gather(offsets[:-1]).to_list()
    return values


def _together(works: Sequence[_Work], judged: Sequence[list[_Part]], notes: list[str]) -> Judgement:
    options, protocol = works[0].options, works[0].protocol
    counts = sum((part.counts for part in judged[0]), Counter[str]())
    for path, kind, known in ((options.qrels, "judges", counts["judged"]), (options.run, "ranks", counts["ranked"])):
        if path is not None and known == 0:
            remedy = "check the query ids, and name the candidates' ids with --doc"
            raise DataError(path, f"{kind} none of the candidates: {remedy}")
    judged = [[part for part in own if part.rows] for own in judged]
    values = {
        ranker: {
            metric: np.concatenate([part.values[ranker][metric] for part in own])
            for metric in own[0].values[ranker]
            if all(metric in part.values[ranker] for part in own)  # a list may be without probabilities
        }
        for own in judged
        for ranker in own[0].values
    }
    stated = {
        work.name: join_lists([part.stated for part in own if part.stated is not None])
        for work, own in zip(works, judged, strict=True)
        if "log_loss" in values[work.name]
    }
    first = judged[0]
    weights = None if options.weight is None else np.concatenate([part.weights for part in first])
    if weights is not None and not weights.any():
        raise DataError(options.data, "all weights are 0: no query counts; raise some", column=options.weight)
    rankers = (*(work.name for work in works), *(() if options.run is None else (str(options.run),)))
    evaluation = Evaluation(values, protocol, weights, stated=stated)
    rows = sum(part.rows for part in first)
    if evaluation.empty_queries == evaluation.queries:
        raise DataError(
            options.data, "no list has a relevant candidate, one with a label above 0: nothing can be judged"
        )
    by = {name: [value for part in first for value in part.segments[name]] for name in options.by}
    scope = tuple(_scope(options, counts, evaluation.queries, rows))
    return Judgement(evaluation, rankers, by, rows, scope, tuple(notes), options.shared_only)


def _scope(options: Judging, counts: Counter[str], lists: int, rows: int) -> Iterator[str]:
    """Yield what was measured, where it is not all of the files, or not as TREC's tools would."""
    unjudged, elsewhere, unknown = (counts[name] for name in ("unjudged lists", "judged elsewhere", "unknown"))
    if unjudged:
        yield f"{unjudged:,} lists are left out: {options.qrels} judges none of their candidates"
    if options.qrels is not None:
        lacking = len(read_trec(options.qrels, "qrels")) - lists - counts["unshared lists"]
        if lacking:
            yield f"{options.qrels} judges {lacking:,} queries that the data lack: left out, where TREC's tools count 0"
        if elsewhere:
            yield f"{options.qrels} judges {elsewhere:,} documents that the data lack: they count as not retrieved"
    if options.run is None:
        return
    if options.shared_only:
        yield f"only candidates that both the data and {options.run} have are measured"
        if counts["unshared lists"]:
            yield f"{counts['unshared lists']:,} lists are left out: they have no such candidate"
    elif counts["ranked"] < rows:
        yield f"{options.run} ranks {counts['ranked']:,} of {rows:,} candidates: the others count as not retrieved"
    if unknown and not options.shared_only:
        yield f"{options.run} ranks {unknown:,} documents that the data lack: unless judged they count as irrelevant"
    if counts["equal scores"]:
        yield (
            f"{options.run} has equal scores in {counts['equal scores']:,} lists: they share their ranks, where TREC's "
            "tools go by the documents' names"
        )


def _publish(parts_folder: Path, out: Path, works: Sequence[_Work]) -> None:
    """Join the parts' TREC files to a folder, in full or not at all."""
    files = {"labels.qrels": "*.qrels"}
    for work in works:
        name = f"{work.name.replace('/', '-')}.run"
        files[f"other-{name}" if name in files else name] = f"*.{'first' if work.with_others else 'second'}.run"
    with atomic_folder(out, out.with_name(f".{out.name}.new")) as whole:
        for name, pattern in files.items():
            with (whole / name).open("wb") as to:
                to.writelines(path.read_bytes() for path in sorted(parts_folder.glob(pattern)))
