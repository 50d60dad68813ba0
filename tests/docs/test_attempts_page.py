"""``docs/attempts.md`` shows what the committed results say, and its recipe is one."""

import re

import pytest

from benchmarks.science.attempts import page
from benchmarks.science.attempts.networks import BLOCKS
from benchmarks.science.attempts.problem import PLANTED_QUERIES
from listwright.training.recipe import config
from listwright.training.recipe.model import Qilcm2Spec
from support.figure_blocks import blocks, result

TEXT = page.PAGE.read_text(encoding="utf-8")
RESULT = result("attempts")
ROWS = {(found["set"], row["attempt"]): row for found in RESULT["sets"] for row in found["attempts"]}


NETWORKS = ("qilcm2", "blocks", "strong", "softmax", "plackett_luce", "lambda_loss", "neural_ndcg", "mlp_stacked")


def test_tables_are_those_of_the_results():
    assert blocks(TEXT) == [page.tables(RESULT)]
    assert RESULT["planted_queries"] == PLANTED_QUERIES


@pytest.mark.parametrize(
    ("name", "attempt", "pays"),
    [
        ("context", "blocks", True),
        ("shifted", "blocks", True),
        ("airline", "sum", True),
        ("airline", "blocks", False),
        ("mq2008", "sum", False),
        ("mq2008", "mlp_stacked", False),
        ("ohsumed", "sum", False),
        ("ohsumed", "blocks", False),
        ("ohsumed", "blocks_safe", False),
        *((name, attempt, False) for name in ("airline", "ohsumed") for attempt in NETWORKS),
    ],
)
def test_what_follows_does_follow(name, attempt, pays):
    assert (ROWS[name, attempt]["gain"][1] > 0) == pays


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


def test_what_has_all_seeds_does():
    """Of the rows that the conclusions stand on: five seeds, five folds."""
    rows = [ROWS[name, attempt] for name in ("airline", "ohsumed") for attempt in NETWORKS]
    rows += [ROWS[name, attempt] for name in ("airline", "mq2008", "ohsumed") for attempt in ("sum", "blocks")]
    assert {(row["seeds"], row["fits"]) for row in rows} == {(5, 25)}


def test_self_attention_loses_on_ohsumed():
    assert ROWS["ohsumed", "blocks"]["gain"][2] < 0
    low, high = ROWS["ohsumed", "blocks_safe"]["gain"][1:]
    assert low < 0 < high
