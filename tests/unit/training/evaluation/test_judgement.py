"""Bundles judged on new rows: the figures of a report, whatever the file, the parts and the number of processes."""

import json
import math
import subprocess
import sys

import ir_measures
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import AP, RR, P, nDCG

from listwright.command import main
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import DataError, ListwrightError
from listwright.ranking.metrics import EvalProtocol
from listwright.ranking.order import ranks_by_score
from listwright.training.data.tables import table
from listwright.training.data.tables.judged import judged_metadata
from listwright.training.evaluation import gates, judgement
from listwright.training.evaluation.gates import OTHERS, Gate, Judgement, parse_gate
from listwright.training.evaluation.intervals import bound_mean
from listwright.training.evaluation.judgement import Judging, judge
from listwright.training.evaluation.protocol import METRICS, Evaluation, evaluate
from listwright.training.evaluation.trec import read_trec
from listwright.training.recipe.data import TableData
from listwright.training.reporting.judged_page import gain_sentence
from listwright.training.scoring import run as scoring_run
from listwright.training.scoring.run import parts
from support.service.bundles import make_bundle
from support.training.scored import lists, rank_by_threads

THEIRS = {nDCG(gains={1: 1, 2: 3, 3: 7}) @ 10: "ndcg@10", RR: "mrr", AP: "map", P @ 5: "precision@5"}

TIES = 1e-3
"""What equal scores of a bundle, which share their ranks, change beside the run that it writes."""

LENGTHS = [1, 7, 120, 3, 40, *([9] * 60)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A bundle of two stages, and another one."""
    folder = tmp_path_factory.mktemp("models") / "shop"
    return make_bundle(folder / "1", defaults={"price": 0.5}), make_bundle(
        folder / "2", seed=8, defaults={"price": 0.5}
    )


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Parts of a few lists, ranked by a thread: a process would take seconds to start."""

    rank_by_threads(monkeypatch, 50)


@pytest.fixture
def frame():
    rows, rng = lists(LENGTHS), np.random.default_rng(3)
    market = np.repeat(np.where(np.arange(len(LENGTHS)) % 3 == 0, "DE", "FR"), LENGTHS)
    offers = [f"o{n}" for n in range(rows.height)]
    return rows.with_columns(
        label=pl.Series(rng.integers(0, 4, rows.height) * (rng.random(rows.height) < 0.4)),
        market=pl.Series(market),
        weight=pl.Series(np.repeat(rng.integers(0, 3, len(LENGTHS)), LENGTHS)),
        offer=pl.Series(offers),
    )


@pytest.fixture
def data(frame, tmp_path):
    path = tmp_path / "rows.parquet"
    frame.write_parquet(path)
    return path


def judging(folders, data, **options):
    return Judging(tuple(folders), data, **{"qid": "query", "label": "label"} | options)


def interval_of(evaluation, metric, ranker):
    found = next(of for of in evaluation.metrics() if (of.ranker, of.name) == (ranker, metric))
    return found.mean, found.low, found.high


def means(judged, name="shop/1"):
    return {metric: interval_of(judged.evaluation, metric, name) for metric in METRICS}


@pytest.mark.parametrize("weight", [None, "weight"])
def test_the_figures_are_those_of_a_report(models, data, weight):
    ignored = ("note", "market", "offer", *(() if weight else ("weight",)))
    spec = TableData(qid="query", label="label", weight=weight, ignore=ignored)
    served = bundle.load(models[0])
    test = table.read(spec, str(data)).dataset.with_schema(served.manifest.feature_schema)
    expected = evaluate(served.reranker, test)
    judged = judge(judging(models[:1], data, weight=weight))
    assert judged.evaluation.protocol.weighted is (weight is not None)
    assert judged.evaluation.queries == len(LENGTHS)
    for ours, theirs in (("shop/1", "qilcm"), ("shop/1, first stage", "first_stage")):
        for metric in METRICS:
            own = interval_of(judged.evaluation, metric, ours)
            assert own == pytest.approx(interval_of(expected, metric, theirs), abs=1e-12)


def test_an_evaluation_holds_the_rankings_that_the_service_gives(models, data):
    spec = TableData(qid="query", label="label", ignore=("note", "market", "offer", "weight"))
    reranker = bundle.load(models[0]).reranker
    test = table.read(spec, str(data)).dataset.with_schema(reranker.schema)
    ranked = evaluate(reranker, test).ranked
    keys = ranked.sort_keys("qilcm")
    for rows in map(test.slice, range(len(test))):
        assert sorted(ranked.order[rows]) == list(range(rows.start, rows.stop))
        ranking = reranker.rerank(CandidateList(test.features[ranked.order[rows]]), strategy="qilcm")
        assert np.array_equal(ranked.scores["qilcm"][rows], ranking.scores, equal_nan=True)
        assert np.array_equal(ranked.first_scores[rows], ranking.first_stage_scores)
        assert ranks_by_score(keys[rows]).tolist() == ranking.ranks.tolist()


def test_neither_parts_nor_jobs_nor_the_kind_of_file_change_a_figure(models, frame, data, tmp_path, monkeypatch):
    first = means(judge(judging(models[:1], data)))
    frame.write_csv(tmp_path / "rows.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    frame[:200].write_parquet(folder / "a.parquet")  # in the middle of a list
    frame[200:].write_parquet(folder / "b.parquet")
    for path in (tmp_path / "rows.csv", folder):
        assert means(judge(judging(models[:1], path))) == first
    monkeypatch.setattr(scoring_run, "parts", parts)
    assert means(judge(judging(models[:1], data), jobs=1)) == first


def test_candidates_that_were_not_shown_are_refused(models, frame, tmp_path):
    metadata = judged_metadata(["price"], qid="query", label="label", time="served_at", unshown=True)
    frame.write_parquet(tmp_path / "rows.parquet", metadata=metadata)
    with pytest.raises(DataError, match="without --unshown"):
        judge(judging(models[:1], tmp_path / "rows.parquet"))


def test_two_bundles_are_compared_query_by_query(models, data):
    judged = judge(judging(models, data, by=("market",)))
    one, other = (judged.evaluation.values[name]["ndcg@10"] for name in ("shop/1", "shop/2"))
    assert judged.estimate("ndcg@10")[0] == pytest.approx((np.nan_to_num(other) - np.nan_to_num(one)).mean())
    alone = judge(judging(models[1:], data))
    np.testing.assert_array_equal(other, alone.evaluation.values["shop/2"]["ndcg@10"])
    markets = np.array(["DE" if n % 3 == 0 else "FR" for n in range(len(LENGTHS))])
    for segment in judged.segments("ndcg@10"):
        of = markets == segment.value
        differences = np.nan_to_num(other[of]) - np.nan_to_num(one[of])
        assert segment.estimate[1:] == bound_mean(differences, alpha=0.025, limits=(-1.0, 1.0))
        assert segment.lists == of.sum()
        assert segment.means == pytest.approx([np.nan_to_num(values[of]).mean() for values in (one, other)])
        assert segment.estimate[0] == pytest.approx(segment.means[1] - segment.means[0])


def test_values_with_few_lists_stand_together_and_a_missing_one_is_a_value(models, frame, tmp_path):
    kinds = [None if n < 30 else f"{n // 33}" for n in range(len(LENGTHS))]
    few = frame.with_columns(
        kind=pl.Series(np.repeat(np.array(kinds, dtype=object), LENGTHS).tolist(), dtype=pl.String)
    )
    few.write_parquet(tmp_path / "few.parquet")
    judged = judge(judging(models[:1], tmp_path / "few.parquet", by=("kind",)))
    assert {s.value: s.lists for s in judged.segments("mrr")} == {"1": 32, "(missing)": 30, "(others)": 3}


def test_trec_tools_say_the_same_to_the_last_digit(models, data, tmp_path):
    """With gains 2^y - 1; a written run has no equal scores, which TREC's tools order by candidate id."""
    out = tmp_path / "trec"
    judge(judging(models, data, doc="offer", trec=out))
    qrels = list(ir_measures.read_trec_qrels(str(out / "labels.qrels")))
    for name in ("shop-1", "shop-2"):
        written = out / f"{name}.run"
        judged = judge(judging(models[:1], data, doc="offer", run=written))
        run = list(ir_measures.read_trec_run(str(written)))
        qids = list(dict.fromkeys(line.query_id for line in run))
        measured = {(m.query_id, THEIRS[m.measure]): m.value for m in ir_measures.iter_calc(list(THEIRS), qrels, run)}
        for metric in THEIRS.values():
            own = np.nan_to_num(judged.evaluation.values[str(written)][metric])
            assert own == pytest.approx([measured[qid, metric] for qid in qids], abs=1e-9)


def test_a_run_of_another_system_is_compared_and_its_labels_are_read(models, frame, data, tmp_path):
    """The bundle's own run, written and read again, gains nothing; reversed it does not."""
    out = tmp_path / "trec"
    first = judge(judging(models[:1], data, doc="offer", trec=out))
    frame.drop("label").write_parquet(tmp_path / "unlabelled.parquet")
    options = {"label": None, "doc": "offer", "qrels": out / "labels.qrels"}
    judged = judge(judging(models[:1], tmp_path / "unlabelled.parquet", run=out / "shop-1.run", **options))
    assert means(judged) == means(first)
    assert judged.estimate("ndcg@10")[0] == pytest.approx(0.0, abs=1e-12)
    lines = [line.split() for line in (out / "shop-1.run").read_text().splitlines()]
    reversed_run = tmp_path / "reversed.run"
    reversed_run.write_text(
        "\n".join(f"{q} Q0 {doc} 1 -{score} x" for q, _, doc, _, score, _ in lines) + "\nq0 Q0 unheard 1 9 x"
    )
    best = [doc for _, _, doc, rank, *_ in lines if rank == "1"]
    frame.with_columns(label=pl.col("offer").is_in(best).cast(pl.Int8)).write_parquet(tmp_path / "best.parquet")
    judged = judge(judging(models[:1], tmp_path / "best.parquet", doc="offer", run=reversed_run))
    assert judged.estimate("ndcg@10")[2] < 0.0
    assert any("1 documents that the data lack" in text for text in judged.scope)


def test_a_candidate_that_a_run_lacks_is_not_retrieved(models, data, tmp_path):
    """TREC's tools give no credit for it, however short the list."""
    out = tmp_path / "trec"
    judge(judging(models[:1], data, doc="offer", trec=out))
    rng = np.random.default_rng(5)
    lines = [line for line in (out / "shop-1.run").read_text().splitlines() if rng.random() < 0.4]
    path = tmp_path / "partial.run"
    path.write_text("\n".join(lines))
    judged = judge(judging(models[:1], data, doc="offer", run=path))
    assert [f"{path} ranks {len(lines)} of 711 candidates: the others count as not retrieved"] == list(judged.scope)
    qrels = list(ir_measures.read_trec_qrels(str(out / "labels.qrels")))
    run = list(ir_measures.read_trec_run(str(path)))
    for measure, metric in THEIRS.items():
        measured = {one.query_id: one.value for one in ir_measures.iter_calc([measure], qrels, run)}
        own = np.nan_to_num(judged.evaluation.values[str(path)][metric])
        assert own == pytest.approx([measured.get(f"q{n}", 0.0) for n in range(len(LENGTHS))], abs=1e-9)


def test_labels_above_four_change_the_scale_of_err_for_all_lists(models, frame, tmp_path):
    high = frame.with_columns(label=pl.when(pl.col("query") == "q64").then(6).otherwise(pl.col("label")))
    high.write_parquet(tmp_path / "high.parquet")
    first = judge(judging(models[:1], tmp_path / "high.parquet")).evaluation.values["shop/1"]["err@10"]
    usual = high.filter(pl.col("query") != "q64")
    usual.write_parquet(tmp_path / "usual.parquet")
    lower = judge(judging(models[:1], tmp_path / "usual.parquet")).evaluation.values["shop/1"]["err@10"]
    assert (first[:-1] < lower).sum() > 30


def test_given_gains_are_the_scale_of_err(models, data, monkeypatch):
    served, protocol = bundle.load(models[0]), EvalProtocol(gains=(0.0, 1.0, 2.0, 5.0))
    spec = TableData(qid="query", label="label", ignore=("note", "market", "offer", "weight"))
    test = table.read(spec, str(data)).dataset.with_schema(served.manifest.feature_schema)
    expected = evaluate(served.reranker, test, protocol=protocol).values["qilcm"]["err@10"]
    manifest = served.manifest.model_copy(update={"protocol": protocol})
    monkeypatch.setattr(judgement.bundle, "read_manifest", lambda _: manifest)
    judged = judge(judging(models[:1], data))
    assert judged.evaluation.values["shop/1"]["err@10"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "gate"), [("ndcg@10 >= -0.002", Gate("ndcg@10", -0.002)), (" mrr>=.5 ", Gate("mrr", 0.5))]
)
def test_gates_are_read(text, gate):
    assert parse_gate(text) == gate


@given(
    st.tuples(
        st.sampled_from([*METRICS, "ndcg", "auc"]),
        st.sampled_from([">=", " >= ", ">", "<="]),
        st.one_of(st.floats().map(str), st.sampled_from(["1e999", "1_0", "", "x", "\u0663"])),
    )
)
def test_a_text_is_a_gate_or_an_error(words):
    metric, sign, number = words
    try:
        gate = parse_gate("".join(words))
    except ValueError:
        assert (
            metric not in METRICS
            or sign.strip() != ">="
            or number in ("1e999", "1_0", "", "x", "nan", "inf", "-inf", "\u0663")
        )
        return
    assert gate == Gate(metric, float(number))
    assert math.isfinite(gate.bound)


def gains_judged(gains, kinds=None, weights=None):
    """A judgement of two rankers with these gains in MRR."""
    values = {"first": {m: np.full(len(gains), 0.5) for m in METRICS}}
    values["second"] = {m: np.asarray(gains) + 0.5 for m in METRICS}
    evaluation = Evaluation(values, EvalProtocol(weighted=weights is not None), weights)
    return Judgement(evaluation, ("first", "second"), {} if kinds is None else {"kind": kinds}, len(gains))


def test_a_gate_is_decided_by_the_ends_of_the_interval_and_by_no_more():
    judged = gains_judged(np.random.default_rng(2).uniform(-0.1, 0.2, 400))
    mean, low, high = judged.estimate("mrr")
    for least, verdict in (
        (low, "holds"),
        (np.nextafter(low, 1.0), "undecided"),
        (high, "undecided"),
        (np.nextafter(high, 1.0), "broken"),
    ):
        assert judged.decide(Gate("mrr", least)).verdict == verdict
    decided = judged.decide(Gate("mrr", low))
    assert decided.estimate == (mean, low, high)
    assert (decided.lists, decided.lists_needed, decided.segments) == (400, None, ())
    assert judged.decide(Gate("mrr", mean)).lists_needed is None  # no number of lists tells a mean from itself
    assert judged.decide(Gate("mrr", low + 1e-4)).lists_needed > 400


def test_a_segment_breaks_a_gate_that_all_lists_hold():
    """Its interval must end below the bound, at the level of all segments together."""
    rng = np.random.default_rng(3)
    kinds = np.array(["good"] * 4000 + ["bad"] * 300)
    gains = np.where(kinds == "bad", -0.1, 0.1) + rng.uniform(-0.2, 0.2, len(kinds))
    judged = gains_judged(gains, kinds.tolist())
    assert gains_judged(gains).decide(Gate("mrr", -0.002)).verdict == "holds"
    broken = judged.decide(Gate("mrr", -0.002))
    assert broken.verdict == "broken"
    assert [segment.value for segment in broken.segments] == ["bad"]
    high = broken.segments[0].estimate[2]
    assert high == bound_mean(gains[kinds == "bad"], alpha=0.025, limits=(-1.0, 1.0))[1]
    assert judged.decide(Gate("mrr", high)).verdict == "holds"
    assert judged.decide(Gate("mrr", np.nextafter(high, 1.0))).verdict == "broken"


@pytest.mark.parametrize(("count", "value"), [(20, "b"), (19, OTHERS)])
def test_twenty_lists_are_a_segment_and_nineteen_are_not(count, value):
    judged = gains_judged(np.zeros(100 + count), ["a"] * 100 + ["b"] * count)
    assert {one.value: one.lists for one in judged.segments("mrr")} == {"a": 100, value: count}


@pytest.mark.parametrize("skewed", [False, True])
def test_verdicts_are_wrong_as_often_as_is_said(skewed):
    """At the bound itself: by all lists, and by fifty segments of twenty lists, where percentile intervals fail."""
    rng = np.random.default_rng(5)
    kinds = np.repeat(np.arange(50), 20).astype(str).tolist()
    wrong = {"holds": 0, "broken": 0, "segments": 0}
    for _ in range(8):
        gains = rng.choice([0.03, -0.27], 1000, p=[0.9, 0.1]) if skewed else rng.normal(0.0, 0.1, 1000)
        for sign in (1.0, -1.0):
            verdict = gains_judged(sign * gains).decide(Gate("mrr", 0.0)).verdict
            wrong[verdict] = wrong.get(verdict, 0) + 1
            wrong["segments"] += bool(gains_judged(sign * gains, kinds).decide(Gate("mrr", 0.0)).segments)
    assert wrong["undecided"] >= 14
    for kind in ("holds", "broken", "segments"):
        assert wrong[kind] <= 12, (
            kind
        )  # of 240, where 6 are expected at most: one in 60 such tests would fail by chance


def test_a_gate_of_one_bundle_bounds_its_mean(models, data):
    judged = judge(judging(models[:1], data))
    mean, low, high = judged.estimate("mrr")
    assert mean == interval_of(judged.evaluation, "mrr", "shop/1")[0]
    assert 0.0 <= low < mean < high <= 1.0
    assert judged.decide(Gate("mrr", low)).verdict == "holds"
    assert judged.decide(Gate("mrr", 1.0)).verdict == "broken"


BAD = {
    "missing label": (
        lambda f: f.with_columns(label=pl.when(pl.col("query") == "q3").then(None).otherwise("label")),
        {},
        "column label",
    ),
    "label of text": (lambda f: f.with_columns(label=pl.lit("good")), {}, "expected a relevance label"),
    "no label column": (lambda f: f.drop("label"), {}, "--label: no column 'label'"),
    "label not named": (lambda f: f, {"label": None}, "name the column of labels with --label"),
    "qid not named": (lambda f: f, {"qid": None}, "the column of query ids is not named"),
    "other features": (lambda f: f.rename({"stars": "stairs"}), {}, "lacks stars, which shop/1 was fitted with"),
    "segment not there": (lambda f: f, {"by": ("markte",)}, "did you mean 'market'"),
    "segment is a feature": (lambda f: f, {"by": ("carrier",)}, "--by carrier: is a feature of shop/1"),
    "segment is the label": (lambda f: f, {"by": ("label",)}, "--by label: holds the labels"),
    "segment varies": (lambda f: f, {"by": ("note",)}, "--by note: query q1 has row 1 and row 2"),
    "weight not there": (lambda f: f, {"weight": "w"}, "--weight: no column 'w'"),
    "negative weight": (lambda f: f.with_columns(weight=-1.0), {"weight": "weight"}, "expected a weight"),
    "all weights 0": (lambda f: f.with_columns(weight=0.0), {"weight": "weight"}, "all weights are 0"),
    "no such strategy": (lambda f: f, {"strategy": "dcm"}, "dcm"),
    "label is a feature": (lambda f: f, {"label": "stars"}, "--label stars: is a feature of shop/1"),
    "nothing relevant": (lambda f: f.with_columns(label=pl.lit(0)), {}, "no list has a relevant candidate"),
    "ids twice": (lambda f: f.with_columns(offer=pl.lit("o")), {"doc": "offer"}, "query q1 has candidate 'o' twice"),
    "no id": (lambda f: f.with_columns(offer=pl.lit(None, pl.String)), {"doc": "offer"}, "without an id"),
    "rows apart": (lambda f: pl.concat([f, f[:1]]), {}, "has rows before"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_a_clear_error(models, frame, tmp_path, case):
    change, options, says = BAD[case]
    path = tmp_path / "bad.parquet"
    change(frame).write_parquet(path)
    with pytest.raises(ListwrightError) as error:
        judge(judging(models[:1], path, **options))
    assert says in str(error.value)


def test_files_of_other_candidates_are_refused(models, data, tmp_path):
    (tmp_path / "other.run").write_text("q1 Q0 unheard 1 1 x\n")
    (tmp_path / "other.qrels").write_text("q1 0 unheard 1\n")
    with pytest.raises(DataError, match=r"ranks none of the candidates.*--doc"):
        judge(judging(models[:1], data, run=tmp_path / "other.run"))
    with pytest.raises(DataError, match="judges none of the candidates"):
        judge(judging(models[:1], data, label=None, qrels=tmp_path / "other.qrels"))
    with pytest.raises(ListwrightError, match="both give labels"):
        judge(judging(models[:1], data, qrels=tmp_path / "other.qrels"))


def test_lists_that_do_not_count_do_not_count_for_a_gate():
    """Of weight 0: they neither break a gate nor make it hold."""
    gains = np.array([0.2] * 300 + [-0.2] * 300)
    kinds, weights = ["a"] * 300 + ["b"] * 300, np.repeat([1.0, 0.0], 300)
    decided = gains_judged(gains, kinds, weights).decide(Gate("mrr", 0.1))
    assert (decided.verdict, decided.lists) == ("holds", 300)
    alone = gains_judged(gains[:300]).decide(Gate("mrr", 0.1))
    assert decided.estimate == pytest.approx(alone.estimate)
    nothing = gains_judged(gains[300:], weights=np.zeros(300)).decide(Gate("mrr", 0.1))
    assert (nothing.verdict, nothing.estimate, nothing.lists) == ("undecided", (0.0, -1.0, 1.0), 0)


def theirs(qrels, run):
    """What ir_measures says of files: by query and metric, and the means."""
    labels, ranked = list(ir_measures.read_trec_qrels(str(qrels))), list(ir_measures.read_trec_run(str(run)))
    by_query = {(m.query_id, THEIRS[m.measure]): m.value for m in ir_measures.iter_calc(list(THEIRS), labels, ranked)}
    return by_query, {THEIRS[m]: v for m, v in ir_measures.calc_aggregate(list(THEIRS), labels, ranked).items()}


@pytest.fixture
def written(models, data, tmp_path):
    """Labels of the lists, and the first bundle's run."""
    judge(judging(models[:1], data, doc="offer", trec=tmp_path / "trec"))
    return tmp_path / "trec" / "labels.qrels", tmp_path / "trec" / "shop-1.run"


def trec_judging(models, data, qrels, **options):
    return judging(models, data, **{"label": None, "doc": "offer", "qrels": qrels} | options)


def test_queries_that_nobody_judged_are_left_out(models, frame, tmp_path, written):
    """Means, segments, weights and gates are over the others, as ir_measures has them."""
    qrels, run = written
    half = tmp_path / "half.qrels"
    half.write_text(
        "".join(line for line in qrels.read_text().splitlines(keepends=True) if int(line.split()[0][1:]) % 2)
    )
    path = tmp_path / "unlabelled.parquet"
    frame.drop("label").write_parquet(path)
    for options in ({}, {"run": run}):
        judged = judge(trec_judging(models[:1], path, half, by=("market",), **options))
        assert judged.evaluation.queries == 32
        assert any(text.startswith("33 lists are left out") for text in judged.scope)
        assert sum(segment.lists for segment in judged.segments("mrr")) == 32
        assert judged.rows == sum(length for n, length in enumerate(LENGTHS) if n % 2)
        _, aggregate = theirs(half, run)
        for ranker, tolerance in (("shop/1", TIES), *((str(run), 1e-9) for run in options.values())):
            for metric, value in aggregate.items():
                assert interval_of(judged.evaluation, metric, ranker)[0] == pytest.approx(value, abs=tolerance)
    two = judge(trec_judging(models, path, half, weight="weight"))
    assert len(two.evaluation.weights) == 32
    assert two.decide(Gate("mrr", -1.0)).lists == (two.evaluation.weights > 0).sum()
    out = tmp_path / "again"
    judge(trec_judging(models[:1], path, half, trec=out))
    assert theirs(out / "labels.qrels", out / "shop-1.run")[1] == pytest.approx(theirs(half, run)[1])


def test_documents_of_a_run_that_the_data_lack_keep_their_places(models, data, written, tmp_path):
    """As in TREC's tools; without them the other system would be flattered."""
    qrels, run = written
    theirs_run = tmp_path / "theirs.run"
    extra = [f"q{n} Q0 unheard{k} {k} {1000 + k} x\n" for n in range(len(LENGTHS)) for k in (1, 2)]
    theirs_run.write_text(run.read_text() + "".join(extra))
    judged = judge(judging(models[:1], data, doc="offer", run=theirs_run))
    assert any(f"ranks {len(extra)} documents that the data lack" in text for text in judged.scope)
    own, aggregate = judged.evaluation, theirs(qrels, theirs_run)[1]
    for metric, value in aggregate.items():
        assert interval_of(own, metric, str(theirs_run))[0] == pytest.approx(value, abs=1e-9)
        assert interval_of(own, metric, "shop/1")[0] == pytest.approx(theirs(qrels, run)[1][metric], abs=TIES)
    shared = judge(judging(models[:1], data, doc="offer", run=theirs_run, shared_only=True))
    assert shared.scope == (f"only candidates that both the data and {theirs_run} have are measured",)
    assert "shared candidates only" in gain_sentence(gates.facts_of(shared))
    for metric in METRICS:
        assert shared.estimate(metric)[0] == pytest.approx(0.0, abs=TIES)


def test_judged_documents_that_the_data_lack_count_as_not_retrieved(models, frame, data, written, tmp_path):
    """In the ideal order and among the relevant ones, of the bundle and of the run."""
    qrels, run = written
    more, theirs_run = tmp_path / "more.qrels", tmp_path / "theirs.run"
    more.write_text(qrels.read_text() + "".join(f"q{n} 0 unheard{n % 3} {n % 3}\n" for n in range(1, 60)))
    theirs_run.write_text(run.read_text() + "".join(f"q{n} Q0 unheard{n % 3} 1 1000 x\n" for n in range(30)))
    path = tmp_path / "unlabelled.parquet"
    frame.drop("label").write_parquet(path)
    judged = judge(trec_judging(models[:1], path, more, run=theirs_run))
    assert any("judges 59 documents that the data lack" in text for text in judged.scope)
    for ranker, file, tolerance in (("shop/1", run, TIES), (str(theirs_run), theirs_run, 1e-9)):
        measured = theirs(more, file)[0]
        for metric in THEIRS.values():
            own = np.nan_to_num(judged.evaluation.values[ranker][metric])
            assert own == pytest.approx([measured[f"q{n}", metric] for n in range(len(LENGTHS))], abs=tolerance)


def test_lists_without_a_shared_candidate_are_left_out_where_only_shared_ones_count(models, data, written, tmp_path):
    _, run = written
    part = tmp_path / "part.run"
    lines = [line for line in run.read_text().splitlines(keepends=True) if int(line.split()[0][1:]) >= 10]
    part.write_text("".join(line for n, line in enumerate(lines) if n % 3) + "q1 Q0 unheard 1 1 x\n")
    judged = judge(judging(models[:1], data, doc="offer", run=part, shared_only=True))
    assert judged.evaluation.queries == len(LENGTHS) - 10
    assert any(text.startswith("10 lists are left out") for text in judged.scope)
    assert judged.estimate("map")[0] == pytest.approx(0.0, abs=TIES)


def test_a_run_that_was_written_again_is_read_again(models, data, written, tmp_path):
    _, run = written
    path = tmp_path / "again.run"
    path.write_text(run.read_text())
    assert judge(judging(models[:1], data, doc="offer", run=path)).estimate("mrr")[0] == pytest.approx(0.0, abs=TIES)
    rows = [line.split() for line in run.read_text().splitlines()]
    path.write_text("".join(f"{qid} Q0 {doc} 1 {-int(score)} x\n" for qid, _, doc, _, score, _ in rows))
    assert abs(judge(judging(models[:1], data, doc="offer", run=path)).estimate("mrr")[0]) > 0.05


def test_equal_scores_of_a_run_are_told(models, data, written, tmp_path):
    _, run = written
    tied = tmp_path / "tied.run"
    tied.write_text(
        "".join(" ".join([*line.split()[:4], "1", "x\n"]) for line in run.read_text().splitlines(keepends=True))
    )
    judged = judge(judging(models[:1], data, doc="offer", run=tied))
    assert [text for text in judged.scope if "equal scores in 64 lists" in text]


@pytest.mark.parametrize("content", ["offer\tclicked\na\t1\n", '{"offer": "a", "clicked": 1}\n'])
def test_a_file_of_another_kind_is_no_letor_text_although_columns_are_named(models, tmp_path, content):
    (tmp_path / "rows.txt").write_text(content)
    with pytest.raises(DataError, match="Parquet, CSV with commas and LETOR text are read; convert it"):
        judge(judging(models[:1], tmp_path / "rows.txt", label="clicked"))


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("run", "q1 Q0 a 1 0.5\n", "line 1: expected query, Q0, candidate, rank, score, name; found 5 fields"),
        ("run", "q1 Q0 a 1 0.5 x\nq1 Q0 a 2 0.4 x\n", "line 2: query q1 has candidate a again"),
        ("run", "q1 Q0 a 1 nan x\n", "expected a finite number; found 'nan'"),
        ("qrels", "q1 0 a 1.5\n", "expected a whole number"),
        ("qrels", "q1 0 a 99\n", "expected a whole number up to"),
        ("qrels", "\n\n", "has no lines"),
        ("run", b"\xff\xfe\x00", "is no text in UTF-8"),
    ],
)
def test_trec_files_that_are_none_get_the_line(tmp_path, kind, text, says):
    path = tmp_path / "file"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as error:
        read_trec(path, kind)
    assert says in str(error.value)


@given(
    st.lists(st.sampled_from(["q1", "Q0", "a", "b", "0", "1", "2.5", "nan", "\n", "1_0", "\ufeff", "-1"]), max_size=24)
)
def test_any_words_are_a_trec_file_or_a_clear_error(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("trec") / "file"
    path.write_text(" ".join(words), encoding="utf-8")
    for kind in ("run", "qrels"):
        try:
            values = read_trec(path, kind)
        except DataError:
            continue
        assert all(math.isfinite(value) for docs in values.values() for value in docs.values())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_mark_before_the_text_is_no_part_of_it(tmp_path, encoding):
    path = tmp_path / "file"
    path.write_text("q1 0 a 2\nq1 0 b -1\n", encoding=encoding)
    assert read_trec(path, "qrels") == {"q1": {"a": 2.0, "b": -1.0}}


def test_the_command_prints_the_answer_and_its_code_is_that_of_the_gates(models, data, tmp_path, capsys):
    words = ["evaluate", str(models[0]), str(models[1]), "--data", str(data), "--qid", "query", "--label", "label"]
    files = ["--by", "market", "--out", str(tmp_path / "p.html"), "--json", str(tmp_path / "j.json")]
    assert main([*words, *files, "--gate", "mrr >= -1"]) == 0
    facts = json.loads((tmp_path / "j.json").read_text())
    assert facts["gates"]["mrr >= -1"]["verdict"] == "holds"
    assert facts["gates"]["mrr >= -1"]["estimate"] == facts["gains"]["mrr"]
    assert facts["compared"] == ["shop/1", "shop/2"]
    assert {segment["value"] for segment in facts["segments"]} == {"DE", "FR"}
    assert "shop/2 over shop/1" in (tmp_path / "p.html").read_text()
    assert main([*words, "--gate", "mrr >= 0.9", "--gate", "map >= -1"]) == 1
    mean = facts["gains"]["mrr"]["mean"]
    close = [f"mrr >= {mean + 1e-9}", f"mrr >= {mean - 1e-9}"]
    assert main([*words, "--gate", close[0], "--gate", close[1], "--gate", "map >= -1"]) == 3
    assert main([*words, "--gate", close[0], "--gate", "mrr >= 0.9"]) == 1
    assert main([*words, "--out", str(tmp_path), "--json", str(tmp_path / "j.json")]) == 1
    assert main([*words, "--out", str(tmp_path / "one"), "--json", str(tmp_path / "one")]) == 1
    assert main([*words, "--json", str(data)]) == 1
    output = capsys.readouterr().out
    assert "--out and --json name the same file" in output
    assert "--data and --json name the same file" in output
    assert f"{facts['gains']['ndcg@10']['mean']:+.4f}" in output
    for wrong, says in (("mrr > 1", "--gate 'mrr > 1'"), ("ndgc@10 >= 0", "there is no metric 'ndgc@10'")):
        assert main([*words, "--gate", wrong]) == 1
        assert says in capsys.readouterr().out.replace("\n", " ")


def test_an_interruption_after_the_trec_files_says_that_they_are_there(models, data, tmp_path, monkeypatch, capsys):
    def interrupt(_judgement):
        raise KeyboardInterrupt

    words = ["evaluate", str(models[0]), "--data", str(data), "--qid", "query", "--label", "label"]
    monkeypatch.setattr(gates, "facts_of", interrupt)
    assert main([*words, "--trec", str(tmp_path / "trec")]) == 130
    assert "is written; the same command without --trec" in " ".join(capsys.readouterr().out.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "trec"]
    assert main(words) == 130
    assert "nothing is written" in capsys.readouterr().out


@pytest.mark.nightly
def test_processes_rank_as_a_thread_does(models, data, tmp_path):
    words = ["evaluate", models[0], "--data", data, "--qid", "query", "--label", "label", "--jobs", "2"]
    command = [sys.executable, "-m", "listwright", *map(str, words), "--json", str(tmp_path / "j.json")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    expected = [metric.model_dump() for metric in judge(judging(models[:1], data)).evaluation.metrics()]
    assert json.loads((tmp_path / "j.json").read_text())["metrics"] == expected
