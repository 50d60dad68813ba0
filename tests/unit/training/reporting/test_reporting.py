"""What the report measures, on queries small enough to check by hand; what its sentences say; how its page is built."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from listwright.ranking.aggregates import AnomalyScore
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.reranker import Reranker
from listwright.training.console.command import repeatable
from listwright.training.evaluation.intervals import verdict_of
from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import QilcmSpec
from listwright.training.reporting import page as page_module
from listwright.training.reporting import sentences
from listwright.training.reporting.measures import behaviour
from listwright.training.reporting.measures.behaviour import RankedQuery, attention
from listwright.training.reporting.page import PageSection, PageTable, render
from support.stand_ins import standing_in


def query(first_scores, scores, labels):
    """A query whose answer is the order by ``scores``, what was not scored behind in first-stage order."""
    first_scores, scores = np.array(first_scores, dtype=float), np.array(scores, dtype=float)
    before = np.argsort(np.argsort(-first_scores)) + 1
    after = np.argsort(np.lexsort((before, np.isnan(scores), -np.nan_to_num(scores)))) + 1
    return RankedQuery(
        np.zeros((len(labels), 2), dtype=np.float32), np.array(labels), first_scores, scores, before, after
    )


def test_ranks_gained_by_relevance_and_first_stage_rank():
    """The last candidate of the first stage is the relevant one, and the second stage puts it first."""
    found = behaviour.movement([query([3, 2, 1], [1, 2, 3], [0, 0, 1]), query([3, 2, 1], [3, 2, 1], [0, 1, 0])])
    assert found["ranks"] == [[1, 1], [2, 2], [3, 3]]
    assert found["relevant"]["mean"] == pytest.approx((2 + 0) / 2)
    assert found["relevant"]["by_rank"] == [[0], [1, 0.0, 0.0, 0.0], [1, 2.0, 2.0, 2.0]]
    assert found["irrelevant"]["by_rank"][0] == [2, -1.0, -1.5, -0.5]


def test_candidates_below_the_cutoff_do_not_count_as_moved():
    found = behaviour.movement([query([3, 2, 1], [1, 2, np.nan], [1, 0, 1])])
    assert found["relevant"]["candidates"] == 1
    assert found["relevant"]["mean"] == -1.0


def test_lists_of_any_length_make_a_bounded_number_of_bins():
    long = np.arange(5000.0)
    found = behaviour.movement([query(-long, -long, (long == 7).astype(int))])
    firsts, lasts = zip(*found["ranks"], strict=True)
    assert len(found["ranks"]) <= behaviour.MOST_RANKS
    assert (firsts[0], lasts[-1]) == (1, 5000)
    assert [first - 1 for first in firsts[1:]] == list(lasts[:-1]), "every rank in one bin"
    assert sum(row[0] for row in found["irrelevant"]["by_rank"]) == 4999


def test_pairs_the_right_way_round_count_ties_half():
    found = behaviour.scores([query([3, 2, 1], [1, 1, 3], [0, 1, 1])])
    assert found["first_stage"]["pairs_right"] == 0.0
    assert found["second_stage"]["pairs_right"] == pytest.approx((0.5 + 1.0) / 2)
    assert sum(found["second_stage"]["relevant"]) == 2
    assert sum(found["first_stage"]["irrelevant"]) == 1


def test_lists_that_say_nothing_make_no_pairs_and_no_histogram():
    found = behaviour.scores([query([1], [1], [0]), query([1, 1], [2, 2], [0, 0])])
    assert found["second_stage"]["pairs_right"] is None
    assert sum(found["second_stage"]["irrelevant"]) == 0
    assert "no pairs" in sentences.scores_sentence(found, "QILCM")


def test_wins_and_losses():
    found = behaviour.wins(np.array([0.0, -0.5, 0.25, 0.0]))
    assert (found["won"], found["lost"], found["queries"]) == (1, 1, 4)
    assert found["gain"] == [-0.5, 0.0, 0.0, 0.25]
    assert found["share"] == [0.125, 0.375, 0.625, 0.875]
    assert sentences.wins_sentence(found) == "25 % of queries gain, 25 % lose, 50 % stay the same"


def test_a_large_split_makes_no_longer_curve():
    found = behaviour.wins(np.random.default_rng(0).normal(size=100_000))
    assert len(found["gain"]) == len(found["share"]) == behaviour.MOST_POINTS
    assert behaviour.spread(10_000, 2000)[[0, -1]].tolist() == [0, 9999]
    assert behaviour.spread(3, 2000).tolist() == [0, 1, 2]


BY_SCORE = standing_in(
    Reranker, anomaly=standing_in(AnomalyScore, of=lambda _features, first_scores: float(first_scores[0]))
)
"""Finds a query as strange as its first score says."""


def test_gain_by_anomaly_finds_the_gap_and_its_doubt():
    rng = np.random.default_rng(0)
    strangeness = rng.permutation(100) / 100
    seen = [query([s, -1], [1, 0], [1, 0]) for s in strangeness]
    found = behaviour.anomaly(BY_SCORE, seen, np.where(strangeness >= 0.8, 0.4, 0.1) + 0.01 * rng.normal(size=100))
    assert [row[0] for row in found["bins"]] == [20] * 5
    assert (found["bins"][0][1], found["bins"][-1][2]) == (0.0, 0.99)
    assert found["gap"]["mean"] == pytest.approx(0.3, abs=0.01)
    assert 0.28 < found["gap"]["low"] < found["gap"]["mean"] < found["gap"]["high"] < 0.32
    assert "larger on unusual queries" in sentences.anomaly_sentence(found, "ndcg@10")[0]
    doubtful = behaviour.anomaly(BY_SCORE, seen, rng.normal(size=100))
    assert doubtful["gap"]["low"] < 0 < doubtful["gap"]["high"]
    assert "does not differ significantly" in sentences.anomaly_sentence(doubtful, "ndcg@10")[0]


def test_few_queries_have_no_gap_and_no_score_says_so():
    found = behaviour.anomaly(BY_SCORE, [query([1, 0], [1, 0], [1, 0])] * 3, np.zeros(3))
    assert found["gap"] is None
    assert "Too few" in sentences.anomaly_sentence(found, "ndcg@10")[0]
    assert behaviour.anomaly(standing_in(Reranker, anomaly=None), [], np.zeros(0)) is None
    assert "no anomaly score" in sentences.anomaly_sentence(None, "ndcg@10")[0]


def module(constant):
    spec = QilcmSpec(encoder_width=4, hidden=(4,), first_stage_score=False)
    schema = FeatureSchema(features=(Feature(name="price"), Feature(name="stars")))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = Ranker(schema, np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32), spec).eval()
    if constant:
        with torch.no_grad():
            for parameter in made.network.attention.parameters():
                parameter.zero_()
    return made


def test_attention_of_an_even_network_is_one_everywhere():
    seen = [query([3, 2, 1], [1, 2, 3], [0, 0, 1]), query([1], [1], [1])]
    found = attention(module(constant=True), False, seen)
    assert found["by_rank"] == [[1, 1.0, 1.0, 1.0]] * 3, "the list of one candidate has no choice"
    assert "close to even" in sentences.attention_sentence(found)
    assert attention(torch.nn.Linear(2, 1), False, seen) is None


def test_attention_belongs_to_the_candidate_of_that_rank():
    rng = np.random.default_rng(1)
    seen = replace(query([1, 3, 2], [1, 2, 3], [0, 0, 1]), features=rng.normal(size=(3, 2)).astype(np.float32))
    made = module(constant=False)
    found = attention(made, False, [seen])
    with torch.inference_mode():
        weights = made.network.represent(made.preprocess(torch.from_numpy(seen.features))[None]).attention[0].numpy()
    assert [row[1] for row in found["by_rank"]] == pytest.approx((3 * weights[[1, 2, 0]]).tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.01, 0.03, "On the test queries, QILCM beats LightGBM by 0.0200 NDCG@10; the 95 % interval excludes 0."),
        (
            -0.01,
            0.05,
            "does not beat LightGBM significantly: NDCG@10 changes by +0.0200, and the 95 % interval contains 0.",
        ),
        (0.0, 0.05, "does not beat LightGBM significantly"),
    ],
)
def test_headline_is_honest(low, high, says):
    gain = {"metric": "ndcg@10", "mean": 0.02, "low": low, "high": high}
    assert says in sentences.headline(gain, "QILCM", "LightGBM")


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (
            0.01,
            0.03,
            "On the test queries, the default, QILCM, beats LightGBM without list-relative columns by 0.0200 NDCG@10, 95 % interval",
        ),
        (-0.01, 0.05, "does not beat LightGBM without list-relative columns significantly: the difference is +0.0200"),
        (
            -0.07,
            -0.01,
            "is worse than LightGBM without list-relative columns by 0.0400 NDCG@10, 95 % interval -0.0700 to",
        ),
    ],
)
def test_the_default_beside_plain_lightgbm(low, high, says):
    gain = {"ranker": "qilcm", "metric": "ndcg@10", "mean": (low + high) / 2, "low": low, "high": high}
    gain["verdict"] = verdict_of(low, high)
    assert says in sentences.plain_sentence(gain, {"qilcm": "QILCM"})


def test_headline_tells_a_loss():
    gain = {"metric": "ndcg@10", "mean": -0.02, "low": -0.03, "high": -0.01}
    assert sentences.headline(gain, "QILCM", "LightGBM").endswith("Serve LightGBM.")


def test_metrics_are_counted_by_their_intervals():
    gains = [{"low": 0.1, "high": 0.2}, {"low": -0.2, "high": -0.1}, {"low": 0.0, "high": 0.0}]
    said = sentences.metrics_sentence(gains, "QILCM")
    assert said == "QILCM's gain has an interval above 0 in 1 of 3 metrics, and one below 0 in 1"
    assert "in none of 1 metrics" in sentences.metrics_sentence(gains[2:], "QILCM")


def test_a_command_is_given_as_others_can_repeat_it():
    given = [
        "mq2008",
        "--data",
        "train=/data/me/a b.txt",
        "/data/me/b.txt",
        "--out",
        "/data/me/x/1",
        "--json",
        "/data/me/found.json",
        "--resume",
        "--fold",
        "2",
    ]
    assert repeatable("fit", given) == ("listwright fit mq2008 --data 'train=a b.txt' b.txt --fold 2")
    assert repeatable("fit", []) == "listwright fit"


def page(**more):
    given = {"command": "", "facts": [], "settings": "{}"} | more
    return render("title", ["says <b>"], [PageSection("found", ["text"])], **given)


def test_a_page_escapes_what_comes_from_data():
    table = PageTable("t", ["<i>", "b"], [["<script>", "1\n0.5"]], "n")
    made = render("<title>", ["<b>"], [PageSection("s", [], [], [table])], command="<c>", facts=["<f>"], settings="<s>")
    assert "<script>" not in made
    assert "<b>" not in made
    assert "<td>1<small>0.5</small></td>" in made
    assert "script-src" not in made
    assert "default-src 'none'" in made, "whatever slips through is not fetched and not run"


def colours(scheme):
    """The variables of one scheme, as the page declares them."""
    light, dark = page().split("prefers-color-scheme: dark", 1)
    part = light if scheme == "light" else dark.split("* {", 1)[0]
    return dict(re.findall(r"(--\w+): (#[0-9a-f]{6})", part))


def luminance(colour):
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_read_in_both_schemes(scheme):
    """WCAG 2.2: 4.5 for text, 3 for what a figure draws."""
    found = colours(scheme)
    needed = {"--ink": 4.5, "--soft": 4.5} | {f"--c{n}": 3.0 for n in range(1, 7)}
    for background in ("--paper", "--panel"):
        for name, least in needed.items():
            light, dark = sorted((luminance(found[name]), luminance(found[background])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= least, (name, background)


def test_figures_draw_in_the_colours_of_the_page():
    light = colours("light")
    assert tuple(light[f"--c{n}"] for n in range(1, 7)) == page_module.COLOURS
    assert (light["--ink"], light["--soft"], light["--rule"]) == (page_module.INK, page_module.SOFT, page_module.RULE)

    @page_module.plot(legend_columns=1)
    def draw(axes, name):
        axes.plot([0, 1], [0, 1], color=page_module.COLOURS[0], label="line")
        return name, 'says "x" < y'

    drawn = [draw(name) for name in ("a", "a", "b")]
    assert drawn[0] == drawn[1]
    assert not set(re.findall(r'id="([^"]+)"', drawn[0])) & set(re.findall(r'id="([^"]+)"', drawn[2]))
    assert "stroke: var(--c1)" in drawn[0]
    assert not re.findall(r"#[0-9a-f]{6}", re.sub(r'href="#[^"]*"|url\(#[^)]*\)', "", drawn[0])), "no colour of its own"
    assert "aria-label=\"says 'x' below y\"" in drawn[0]


def test_report_is_rows_of_numbers():
    from listwright.training.reporting.report import _compact

    facts = {"rows": [[1, 2.5, None], [3, 4.0, 1.0]], "name": "a [b]\n c", "empty": []}
    text = _compact(json.dumps(facts, indent=1))
    assert json.loads(text) == facts
    assert "[ 1, 2.5, null ]" in text
