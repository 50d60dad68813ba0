"""Bundles judged by their probabilities and by further goals, with gates and segments."""

import json

import numpy as np
import polars as pl
import pytest

from listwright.command import main
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import DataError, ListwrightError, RecipeError
from listwright.ranking.metrics import dcg
from listwright.training.evaluation.gates import Gate, facts_of, parse_gate
from listwright.training.evaluation.judgement import Judging, judge
from listwright.training.reporting.judged_page import page
from listwright.training.scoring.worker import lists_of
from support.service.bundles import make_bundle
from support.training.scored import lists, rank_by_threads

LENGTHS = [*([9] * 60), 1, 7, 40]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "shop"
    options = {
        "1": {"probability": "relevance", "goals": {"margin": 0.0, "eco": 0.1}},
        "2": {"probability": "relevance", "seed": 8},
        "3": {"probability": "choice", "kind": None},
        "4": {},
    }
    return {name: make_bundle(folder / name, defaults={"price": 0.5}, **option) for name, option in options.items()}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    rank_by_threads(monkeypatch, 50)


@pytest.fixture
def frame():
    rows, rng = lists(LENGTHS), np.random.default_rng(3)
    market = np.repeat(np.where(np.arange(len(LENGTHS)) % 2 == 0, "DE", "FR"), LENGTHS)
    return rows.with_columns(
        label=pl.Series((rng.random(rows.height) < 0.4).astype(int)),
        market=pl.Series(market),
        weight=pl.Series(np.repeat(rng.integers(0, 3, len(LENGTHS)), LENGTHS)),
        margin=pl.Series(rng.gamma(1.0, size=rows.height)),
    )


@pytest.fixture
def data(frame, tmp_path):
    path = tmp_path / "rows.parquet"
    frame.write_parquet(path)
    return path


def judging(folders, data, **options):
    return Judging(tuple(folders), data, **{"qid": "query", "label": "label"} | options)


def ranked(folder, frame, **options):
    """Each list's labels, margins and ranking, as the service ranks it."""
    served = bundle.load(folder)
    found = lists_of(frame, served.manifest.feature_schema, "query")
    for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True):
        rows = frame[int(begin) : int(end)]
        ranking = served.reranker.rerank(
            CandidateList(np.asarray(found.features)[begin:end].astype(np.float32)), probability=True, **options
        )
        yield rows["label"].to_numpy(), rows["margin"].to_numpy(), ranking


@pytest.mark.parametrize(("name", "weight"), [("1", None), ("2", "weight"), ("3", None)])
def test_log_loss_and_error_are_those_of_the_served_probabilities(models, frame, data, name, weight):
    judged = judge(judging([models[name]], data, weight=weight))
    found = list(ranked(models[name], frame))
    labels, stated = (np.concatenate(column) for column in zip(*((y, r.probability) for y, _, r in found), strict=True))
    weights = np.ones(frame.height) if weight is None else frame["weight"].to_numpy()
    losses = -np.log(np.clip(np.where(labels > 0, stated, 1.0 - stated), 1e-12, None))  # the list of one has 1
    (row,) = [m for m in facts_of(judged)["metrics"] if (m["name"], m["ranker"]) == ("log_loss", f"shop/{name}")]
    assert row["mean"] == pytest.approx(np.average(losses, weights=weights))
    assert row["low"] < row["mean"] < row["high"]
    mean, low, high = judged.estimate("log_loss")
    assert (mean, low < mean < high) == (pytest.approx(row["mean"]), True)
    (row,) = [m for m in facts_of(judged)["metrics"] if (m["name"], m["ranker"]) == ("ece", f"shop/{name}")]
    gap = abs(np.average(stated - labels, weights=weights))
    assert gap - 1e-12 <= row["mean"] == judged.estimate("ece")[0]
    assert row["low"] <= row["mean"] <= row["high"] <= 1.0


def test_segments_have_their_own_figures(models, data):
    judged = judge(judging([models["1"]], data, by=("market",)))
    markets = np.array(["DE" if n % 2 == 0 else "FR" for n in range(len(LENGTHS))])
    stated = judged.evaluation.stated["shop/1"]
    for metric in ("log_loss", "ece"):
        for segment in judged.segments(metric):
            part = stated.select(np.flatnonzero(markets == segment.value))
            loss = np.average(part.log_losses(), weights=part.candidate_weights)
            assert segment.means == pytest.approx([loss if metric == "log_loss" else part.ece])
            assert segment.estimate[0] == pytest.approx(segment.means[0])
    assert set(facts_of(judged)["further_segments"]) == {"log_loss", "ece"}


def test_a_segment_without_weight_breaks_no_gate(models, frame, tmp_path):
    path = tmp_path / "rows.parquet"
    frame.with_columns(weight=(pl.col("market") == "DE").cast(pl.Int8)).write_parquet(path)
    judged = judge(judging([models["1"]], path, by=("market",), weight="weight"))
    for metric in ("log_loss", "ece"):
        decided = judged.decide(Gate(metric, judged.estimate(metric)[2]))
        assert (decided.verdict, decided.lists) == ("holds", 32)
        (without,) = [segment.estimate for segment in judged.segments(metric) if segment.value == "FR"]
        assert without[1] == 0.0
        assert without[2] >= 1.0


@pytest.mark.parametrize("metric", ["log_loss", "ece"])
def test_a_gate_of_probabilities_is_an_upper_bound(models, data, metric):
    one = judge(judging([models["1"]], data))
    _, low, high = one.estimate(metric)
    for bound, verdict in ((high, "holds"), (high - 1e-6, "undecided"), (low - 1e-6, "broken")):
        assert one.decide(Gate(metric, bound)).verdict == verdict
    two = judge(judging([models["1"], models["2"]], data))
    mean, low, high = two.estimate(metric)
    if metric == "ece":
        ends = [two.evaluation.stated[name].error_interval(0.025) for name in ("shop/1", "shop/2")]
        assert (low, high) == (ends[1][0] - ends[0][1], ends[1][1] - ends[0][0])
    means = {m["ranker"]: m["mean"] for m in facts_of(two)["metrics"] if m["name"] == metric}
    assert mean == pytest.approx(means["shop/2"] - means["shop/1"])
    assert two.decide(Gate(metric, high)).verdict == "holds"
    assert two.decide(Gate(metric, low - 1e-6)).verdict == "broken"
    same = judge(judging([models["1"], models["1"]], data))
    assert same.estimate(metric)[0] == 0.0


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("ece <= .02", Gate("ece", 0.02)),
        ("log_loss<=0.5", Gate("log_loss", 0.5)),
        ("ndcg@10[margin] >= -0.005", Gate("ndcg@10[margin]", -0.005)),
    ],
)
def test_gates_of_probabilities_and_goals_are_read(text, gate):
    assert parse_gate(text, ["margin"]) == gate


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ece >= 0.02", "lower is better"),
        ("ndcg@10 <= 0.5", "higher is better"),
        ("ndcg@10[eco] >= 0", "--goal"),
    ],
)
def test_other_gates_get_a_remedy(text, says):
    with pytest.raises(ValueError, match=says):
        parse_gate(text, ["margin"])


def test_a_bundle_without_probabilities_has_no_such_figures_and_gates(models, data):
    for folders in ([models["4"]], [models["1"], models["4"]]):
        judged = judge(judging(folders, data))
        assert not {"log_loss", "ece"} & set(judged.metrics)
        with pytest.raises(RecipeError, match="shop/4 states no probabilities"):
            judged.decide(Gate("ece", 0.1))
    assert "shop/1" in judged.evaluation.stated, "the first one is still measured"
    assert page({**facts_of(judged), "command": "", "gates": {}})


def ndcg_of(gains, order):
    codes, of_codes = np.arange(len(gains)), gains.tolist()
    ideal = dcg(np.argsort(-gains), cutoff=10, gains=of_codes)
    return dcg(codes[order], cutoff=10, gains=of_codes) / ideal


@pytest.mark.parametrize("weights", [None, {"margin": 2.0}])
def test_ndcg_by_a_goal_has_its_values_as_gains(models, frame, data, weights):
    judged = judge(judging([models["1"]], data, goals=("margin",), weights=weights))
    expected = [ndcg_of(margin, ranking.order) for _, margin, ranking in ranked(models["1"], frame, weights=weights)]
    assert judged.evaluation.values["shop/1"]["ndcg@10[margin]"] == pytest.approx(expected)
    assert {"ndcg@10[margin]"} < set(judged.evaluation.values["input order"])
    assert judged.decide(Gate("ndcg@10[margin]", judged.estimate("ndcg@10[margin]")[1])).verdict == "holds"


def test_weights_change_the_order_and_not_the_probabilities(models, data):
    folders = [models["1"], models["2"]]
    plain, other = (judge(judging(folders, data, weights=weights)) for weights in (None, {"margin": 5.0}))
    for name, same in (("shop/1", False), ("shop/2", True)):
        values = [judged.evaluation.values[name]["ndcg@10"] for judged in (plain, other)]
        assert np.array_equal(*values, equal_nan=True) is same
        np.testing.assert_array_equal(*(judged.evaluation.stated[name].probability for judged in (plain, other)))


def test_a_list_without_values_counts_as_one_without_relevant_candidates(models, frame, tmp_path):
    first = (pl.col("query") == frame["query"][0]).cast(pl.Float64)
    frame.with_columns(margin=pl.col("margin") * (1.0 - first)).write_parquet(tmp_path / "zero.parquet")
    judged = judge(judging([models["1"]], tmp_path / "zero.parquet", goals=("margin",)))
    assert np.isnan(judged.evaluation.values["shop/1"]["ndcg@10[margin]"]).tolist() == [True] + [False] * 62


BAD = {
    "a negative value": {"frame": pl.lit(-1.0).alias("margin"), "goals": ("margin",)},
    "a missing value": {"frame": pl.lit(None, pl.Float64).alias("margin"), "goals": ("margin",)},
    "no such column": {"goals": ("profit",)},
    "a feature": {"goals": ("price",)},
    "the label": {"goals": ("label",)},
    "weights of one goal": {"folder": "2", "weights": {"margin": 1.0}},
    "weights of no goal": {"weights": {"profit": 1.0}},
    "a run": {"goals": ("margin",), "run": True},
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_goals_get_a_clear_error(models, frame, tmp_path, case):
    options = dict(BAD[case])
    path, run = tmp_path / "rows.parquet", tmp_path / "a.run"
    frame.with_columns(options.pop("frame", [])).write_parquet(path)
    run.write_text("q0 Q0 1 1 1 x\n")
    if "run" in options:
        options["run"] = run
    with pytest.raises(ListwrightError) as raised:
        judge(judging([models[options.pop("folder", "1")]], path, **options))
    assert "\n" not in str(raised.value)
    assert any(word in str(raised.value) for word in ("margin", "profit", "price", "--goal", "--weights"))


def test_the_command_shows_probabilities_and_goals(models, data, tmp_path, capsys):
    words = ["evaluate", str(models["1"]), str(models["2"]), "--data", str(data), "--qid", "query", "--label", "label"]
    out, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    more = [
        "--goal",
        "margin",
        "--weights",
        "margin=0.3,eco=0",
        "--by",
        "market",
        "--out",
        str(out),
        "--json",
        str(numbers),
    ]
    assert main([*words, *more, "--gate", "ece <= 0.9", "--gate", "ndcg@10[margin] >= -0.9"]) == 0
    facts = json.loads(numbers.read_text())
    assert set(facts["reliability"]) == {"shop/1", "shop/2"}
    assert {"log_loss", "ece", "ndcg@10[margin]"} < set(facts["gains"])
    assert [gate["verdict"] for gate in facts["gates"].values()] == ["holds", "holds"]
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("NDCG@10[margin]", "log loss", "ECE"))
    assert "svg" in out.read_text()
    assert main([*words, "--gate", "ece <= -0.9"]) == 1
    with pytest.raises(SystemExit):
        main([*words, "--weights", "margin=-1"])
    assert "margin=0.3" in capsys.readouterr().err
    with pytest.raises(DataError):
        judge(judging([models["1"]], data, label="margin"))
