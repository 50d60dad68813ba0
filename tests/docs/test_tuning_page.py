"""``docs/tuning.md`` shows ranges that are searched, and a piece of a recipe that is one."""

import re
from pathlib import Path

from listwright.training import search
from listwright.training import search as search_space
from listwright.training.first_stage import boosting, lambdamart
from listwright.training.recipe import config
from listwright.training.search import Range
from listwright.training.second_stage import fit
from support.pages.figure_blocks import blocks, result, table

PAGE = (Path(__file__).parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
SPACES = ("LAMBDAMART", "NETWORK", "HIDDEN", "CONFUSION", "QILCM2", "DLCM", "DCM")


def plain(number):
    return f"{number:f}".rstrip("0").rstrip(".")


def test_every_range_stands_on_the_page():
    for space in SPACES:
        for name, part in getattr(search_space, space).items():
            (row,) = (
                line
                for line in PAGE.splitlines()
                if line.startswith("|")
                and f"`{name}`" in line
                and (name != "learning_rate" or ("LightGBM" in line) == (space == "LAMBDAMART"))
            )
            if isinstance(part, Range):
                assert plain(part.low) in row
                assert plain(part.high) in row
                assert (", log |" in row) == part.log
            else:
                shown = [", ".join(map(str, v)) if isinstance(v, tuple) else plain(v) for v in part.values]
                assert f"| {('; ' if name == 'hidden' else ', ').join(shown)} |" in row


def test_the_piece_on_the_page_fits_into_a_recipe(tmp_path):
    (piece,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\nabout = "x"\n[data]\nkind = "synthetic"\n' + piece)
    recipe = config.load(str(path))
    assert recipe.first_stage.trials == 1
    assert recipe.first_stage.settings.num_leaves == 12
    assert recipe.model.confusion_weight == 0.003


def test_the_numbers_of_the_page():
    assert f"{search.STARTUP_TRIALS} finished trials" in TEXT
    assert f"from {fit.PRUNE_AFTER} epochs of a network" in TEXT
    assert f"{lambdamart.PRUNE_AFTER} trees of LightGBM, then every {boosting.REPORT_EVERY}" in TEXT


def test_the_table_of_smoothing_is_the_committed_result():
    rows = []
    for found in result("smoothing")["rows"]:
        gains = (f"{found[value]:+.3f}" for value in ("100", "1000", "10000"))
        facts = [found["set"], found["most_categories"], f"{found['lists']:,}", f"{found['ndcg@10']:.3f}"]
        rows.append([*facts, *gains])
    head = ["data", "most categories", "training lists", "LightGBM's 10", "100 gains", "1000 gains", "10000 gains"]
    assert blocks(PAGE) == [table(head, rows)]
