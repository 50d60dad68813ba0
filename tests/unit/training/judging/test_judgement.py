"""Bundles judged on new rows: the figures of a report, whatever the file, the parts and the number of processes."""

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import ir_measures
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import AP, RR, P, nDCG

from listwright.command import main
from listwright.ranking import bundle
from listwright.ranking.errors import DataError, ListwrightError
from listwright.training import judgement
from listwright.training.data.tables import table
from listwright.training.evaluation.evaluate import METRICS, bootstrap_interval, evaluate
from listwright.training.judgement import Gate, Judging, judge, parse_gate, read_trec
from listwright.training.recipe.data import TableData
from listwright.training.scoring import run as scoring_run
from support.service.bundles import make_bundle
from support.training.scored import lists

THEIRS = {nDCG(gains={1: 1, 2: 3, 3: 7}) @ 10: "ndcg@10", RR: "mrr", AP: "map", P @ 5: "precision@5"}

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

    @contextmanager
    def threads(_on, jobs, *, local_jobs):
        with ThreadPoolExecutor(jobs or local_jobs) as executor:
            yield executor, jobs or local_jobs

    monkeypatch.setattr(judgement, "side_by_side", threads)
    monkeypatch.setattr(judgement, "parts", lambda rows, qid: scoring_run.parts(rows, qid, 50))


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


def means(judged, name="shop/1"):
    return {metric: judged.evaluation.mean_with_interval(metric, name) for metric in METRICS}


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
            own = judged.evaluation.mean_with_interval(metric, ours)
            assert own == pytest.approx(expected.mean_with_interval(metric, theirs), abs=1e-12)


def test_neither_parts_nor_jobs_nor_the_kind_of_file_change_a_figure(models, frame, data, tmp_path, monkeypatch):
    first = means(judge(judging(models[:1], data)))
    frame.write_csv(tmp_path / "rows.csv")
    folder = tmp_path / "folder"
    folder.mkdir()
    frame[:200].write_parquet(folder / "a.parquet")  # in the middle of a list
    frame[200:].write_parquet(folder / "b.parquet")
    for path in (tmp_path / "rows.csv", folder):
        assert means(judge(judging(models[:1], path))) == first
    monkeypatch.setattr(judgement, "parts", scoring_run.parts)
    assert means(judge(judging(models[:1], data), jobs=1)) == first


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
        assert segment.estimate[1:] == bootstrap_interval(differences, intervals=2)
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
    assert "ranks 711 of 711 candidates, and 1 that the data lack" in judged.notes[0]


def test_a_candidate_that_a_run_lacks_is_not_retrieved(models, data, tmp_path):
    """TREC's tools give no credit for it, however short the list."""
    out = tmp_path / "trec"
    judge(judging(models[:1], data, doc="offer", trec=out))
    rng = np.random.default_rng(5)
    lines = [line for line in (out / "shop-1.run").read_text().splitlines() if rng.random() < 0.4]
    path = tmp_path / "partial.run"
    path.write_text("\n".join(lines))
    judged = judge(judging(models[:1], data, doc="offer", run=path))
    assert f"ranks {len(lines)} of 711 candidates, and 0 that" in judged.notes[0]
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
    assert math.isfinite(gate.least)


def test_a_gate_breaks_by_the_mean_of_all_or_by_a_whole_interval_of_a_segment(models, frame, data, tmp_path):
    """shop/2 is the better one where the label says so, and in one market the worse one."""
    judge(judging(models, data, doc="offer", trec=tmp_path / "trec"))
    best = {}
    for name in ("shop-1", "shop-2"):
        lines = [line.split() for line in (tmp_path / "trec" / f"{name}.run").read_text().splitlines()]
        best |= {(name, query): offer for query, _, offer, rank, *_ in lines if rank == "1"}
    wanted = {best["shop-1" if n % 3 == 0 else "shop-2", f"q{n}"] for n in range(len(LENGTHS))}
    frame.with_columns(label=pl.col("offer").is_in(list(wanted)).cast(pl.Int8)).write_parquet(tmp_path / "won.parquet")
    judged = judge(judging(models, tmp_path / "won.parquet", by=("market",)))
    assert judged.estimate("hit@1")[0] > 0.1
    (breach,) = judged.breaches(Gate("hit@1", -0.002))
    assert breach.startswith("market = DE")
    (french,) = (one for one in judged.segments("hit@1") if one.value == "FR")
    mean, _, high = french.estimate
    assert not any("FR" in text for text in judged.breaches(Gate("hit@1", (mean + high) / 2)))
    assert any(text.startswith("all lists") for text in judged.breaches(Gate("hit@1", 0.99)))
    frame.filter(pl.col("query").is_in([f"q{n}" for n in range(9)])).write_parquet(tmp_path / "nine.parquet")
    assert "too few" in judge(judging(models, tmp_path / "nine.parquet")).breaches(Gate("mrr", 0.0))[0]


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


def test_lists_that_do_not_count_do_not_count_for_a_gate(models, frame, tmp_path):
    """Of weight 0, or dropped by the protocol."""
    weighted = frame.with_columns(weight=pl.when(pl.col("market") == "DE").then(0.0).otherwise(1.0))
    weighted.write_parquet(tmp_path / "weighted.parquet")
    judged = judge(judging(models[:1], tmp_path / "weighted.parquet", weight="weight", by=("market",)))
    assert not any("DE" in text for text in judged.breaches(Gate("mrr", 1.0)))
    few = frame.with_columns(weight=pl.when(pl.col("query") == "q3").then(1.0).otherwise(0.0))
    few.write_parquet(tmp_path / "few.parquet")
    (breach,) = judge(judging(models[:1], tmp_path / "few.parquet", weight="weight")).breaches(Gate("mrr", 0.0))
    assert breach.startswith("1 lists that count")


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
    assert facts["gates"] == {"mrr >= -1": []}
    assert facts["compared"] == ["shop/1", "shop/2"]
    assert {segment["value"] for segment in facts["segments"]} == {"DE", "FR"}
    assert "shop/2 over shop/1" in (tmp_path / "p.html").read_text()
    assert main([*words, "--gate", "mrr >= 0.9", "--gate", "map >= -1"]) == 1
    mean = facts["gains"]["mrr"]["mean"]
    close = [f"mrr >= {mean + 1e-9}", f"mrr >= {mean - 1e-9}"]  # neither hides the other
    assert main([*words, "--gate", close[0], "--gate", close[1]]) == 1
    assert main([*words, "--out", str(tmp_path), "--json", str(tmp_path / "j.json")]) == 1
    assert main([*words, "--out", str(tmp_path / "one"), "--json", str(tmp_path / "one")]) == 1
    output = capsys.readouterr().out
    assert f"{facts['gains']['ndcg@10']['mean']:+.4f}" in output
    for wrong, says in (("mrr > 1", "--gate 'mrr > 1'"), ("ndgc@10 >= 0", "there is no metric 'ndgc@10'")):
        assert main([*words, "--gate", wrong]) == 1
        assert says in capsys.readouterr().out.replace("\n", " ")


def test_an_interruption_after_the_trec_files_says_that_they_are_there(models, data, tmp_path, monkeypatch, capsys):
    def interrupt(_judgement):
        raise KeyboardInterrupt

    words = ["evaluate", str(models[0]), "--data", str(data), "--qid", "query", "--label", "label"]
    monkeypatch.setattr(judgement, "facts_of", interrupt)
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
