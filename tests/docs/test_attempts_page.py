"""``docs/attempts.md`` shows what the committed results say, and its recipe is one."""

import re

import pytest

from benchmarks.science.attempts import page
from benchmarks.science.attempts.networks import BLOCKS
from benchmarks.science.attempts.problem import PLANTED, PLANTED_QUERIES, REAL
from listwright.training.recipe import config
from listwright.training.recipe.model import Qilcm2Spec
from support.pages.figure_blocks import blocks, result

TEXT = page.PAGE.read_text(encoding="utf-8")
RESULT = result("attempts")
ROWS = {(found["set"], row["attempt"]): row for found in RESULT["sets"] for row in found["attempts"]}

ROWS_BY_NAME = {attempt for _, attempt in ROWS}

NETWORKS = ("qilcm2", "blocks", "strong", "softmax", "plackett_luce", "lambda_loss", "neural_ndcg", "pretrained")


def shown(row):
    """Whether a gain (1) or a loss (-1) is shown, over all attempts on the set; 0: neither."""
    return 0 if row["p_holm"] >= page.BELIEVED else 1 if row["gain"][0] > 0 else -1


def test_tables_are_those_of_the_results():
    assert blocks(TEXT) == [page.tables(RESULT)]
    assert RESULT["planted_queries"] == PLANTED_QUERIES


def test_what_follows_does_follow():
    gains = {key for key, row in ROWS.items() if "p_holm" in row and shown(row) == 1}
    assert {key for key in gains if key[0] in REAL} == {("airline", "sum"), ("airline", "learners_stacked")}
    assert {attempt for name, attempt in gains if name == "context"} == {"qilcm2", "blocks"}
    assert {attempt for name, attempt in gains if name == "shifted"} == {"sum", "qilcm2", "blocks", "linear_stacked"}
    losses = {key for key, row in ROWS.items() if "p_holm" in row and shown(row) == -1}
    assert {key for key in losses if key[0] in ("mq2008", "ohsumed")} == set()
    assert ROWS["ohsumed", "pretrained"]["gain"][2] < 0
    low, p = ROWS["airline", "extended_by_query"]["gain"][1], ROWS["airline", "extended_by_query"]["p_holm"]
    assert low > 0
    assert p == pytest.approx(0.10, abs=0.005)
    assert round(ROWS["airline", "learners_stacked"]["gain"][0], 3) == 0.021
    for name in ("airline", "ohsumed"):
        assert set(NETWORKS) <= {attempt for found, attempt in ROWS if found == name}


def test_on_planted_shifts_a_linear_ranker_adds_most():
    gains = {attempt: row["gain"][0] for (name, attempt), row in ROWS.items() if name == "shifted"}
    assert max(gains, key=gains.get) == "linear_stacked"
    assert gains["sum"] > gains["blocks"] > 0


def test_one_attempt_has_intervals_above_0_on_two_real_sets():
    above = [
        {attempt for (name, attempt), row in ROWS.items() if name == found and row["gain"][1] > 0} for found in REAL
    ]
    twice = {attempt for attempt in ROWS_BY_NAME if sum(attempt in names for names in above) > 1}
    assert twice == {"sum_stacked"}


def test_intervals_above_0_by_chance():
    above = {attempt for (name, attempt), row in ROWS.items() if name == "mq2008" and row["gain"][1] > 0}
    assert len(above) == 4
    assert max(ROWS["mq2008", attempt]["gain"][1] for attempt in above) < 0.001


def test_an_mlp_stays_below_the_rival_on_the_airline_set():
    found = [ROWS["airline", attempt]["gain"][0] for attempt in ("mlp", "mlp_relative", "mlp_plain", "mlp_crossed")]
    assert max(found) < 0
    low, high = ROWS["mq2008", "mlp_crossed"]["gain"][1:]
    assert low < 0 < high


def test_the_default_is_the_setting_that_was_measured():
    """But for the cutoff, which was out of the way, and when it stops."""
    same = {
        "cutoff": Qilcm2Spec().cutoff,
        "max_epochs": Qilcm2Spec().max_epochs,
        "patience": Qilcm2Spec().patience,
        "seeds": 2,
    }
    assert BLOCKS.model_copy(update=same) == Qilcm2Spec()


def test_the_recipe_on_the_page_is_read(tmp_path):
    (piece,) = re.findall(r"```\n(\[first_stage\].*?)```", TEXT, flags=re.DOTALL)
    path = tmp_path / "own.toml"
    path.write_text('[data]\nkind = "synthetic"\n' + piece)
    assert config.load(str(path)).first_stage.members == 8


def test_every_row_has_five_seeds_and_five_folds():
    for (name, _), row in ROWS.items():
        assert (row["seeds"], row["fits"]) == ((5, 5) if name in PLANTED else (5, 25))
