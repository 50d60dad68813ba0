"""``docs/attempts.md`` shows what the committed results say, and its recipe is one."""

import re

from listwright.training.recipe import config
from listwright.training.recipe.model import Qilcm2Spec
from listwright_lab.science.attempts import figures
from listwright_lab.science.attempts.networks import BLOCKS
from listwright_lab.science.attempts.problem import LARGE, PLANTED, PLANTED_QUERIES
from support.pages.figure_blocks import blocks, result

TEXT = figures.PAGE.read_text(encoding="utf-8")
RESULT = result("attempts")
ROWS = {(found["set"], row["attempt"]): row for found in RESULT["sets"] for row in found["attempts"]}

NETWORKS = ("qilcm2", "blocks", "strong", "softmax", "plackett_luce", "lambda_loss", "neural_ndcg", "pretrained")


def shown(row):
    """Whether a gain (1) or a loss (-1) is shown, over all attempts on the set; 0: neither."""
    return 0 if row["p_holm"] >= figures.BELIEVED else 1 if row["gain"][0] > 0 else -1


def test_tables_are_those_of_the_results():
    assert blocks(TEXT) == [figures.tables(RESULT)]
    assert RESULT["planted_queries"] == PLANTED_QUERIES


def test_what_follows_does_follow():
    gains = {key for key, row in ROWS.items() if "p_holm" in row and shown(row) == 1}
    assert {key for key in gains if key[0] in ("airline", "mq2008", "ohsumed")} == {
        ("airline", "sum"),
        ("airline", "learners_stacked"),
    }
    on_tafeng = {attempt: ROWS["tafeng", attempt]["gain"][0] for name, attempt in gains if name == "tafeng"}
    rounded = {attempt: round(on_tafeng[attempt], 3) for attempt in ("softmax_trees", "grouped", "by_query")}
    assert rounded == {"softmax_trees": 0.008, "grouped": 0.005, "by_query": 0.003}
    assert shown(ROWS["tafeng", "plain"]) == 0
    assert on_tafeng["extended_by_query"] < on_tafeng["by_query"]
    assert {attempt for name, attempt in gains if name == "context"} == {"qilcm2", "blocks"}
    assert {attempt for name, attempt in gains if name == "shifted"} == {"sum", "qilcm2", "blocks", "linear_stacked"}
    losses = {key for key, row in ROWS.items() if "p_holm" in row and shown(row) == -1}
    assert {key for key in losses if key[0] in ("mq2008", "ohsumed")} == set()
    assert ("shifted", "softmax_trees") in losses
    assert ROWS["ohsumed", "pretrained"]["gain"][2] < 0
    assert round(ROWS["airline", "learners_stacked"]["gain"][0], 3) == 0.021
    assert round(ROWS["airline", "sum"]["gain"][0], 3) == 0.016
    softmax = ROWS["airline", "softmax_trees"]
    assert [round(value, 3) for value in softmax["gain"]] == [0.010, 0.000, 0.020]
    assert softmax["p_holm"] == 1.0
    assert [round(ROWS["flights", name]["gain"][0], 3) for name in ("grouped", "blocks")] == [0.054, 0.023]
    both = [ROWS["tafeng", attempt]["gain"][0] for attempt in ("softmax_by_query", "softmax_grouped")]
    assert max(both) < ROWS["tafeng", "softmax_trees"]["gain"][0] + 0.0005
    for name in ("airline", "ohsumed"):
        assert set(NETWORKS) <= {attempt for found, attempt in ROWS if found == name}


def test_on_planted_shifts_a_linear_ranker_adds_most():
    gains = {attempt: row["gain"][0] for (name, attempt), row in ROWS.items() if name == "shifted"}
    assert max(gains, key=gains.get) == "linear_stacked"
    assert gains["sum"] > gains["blocks"] > 0


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
        assert (row["seeds"], row["fits"]) == ((5, 5) if name in PLANTED + LARGE else (5, 25))
