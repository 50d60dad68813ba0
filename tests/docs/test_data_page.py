"""``docs/data.md`` names options, splits and recipes as the code has them."""

import re
import shlex
from pathlib import Path

import pytest

from listwright.ranking import features
from listwright.ranking.features import MISSING_WORDS, MOSTLY_UNKNOWN, Feature, spelled
from listwright.training.commands import diagnose, fit, tune
from listwright.training.data import cells, dataset, leaks, load
from listwright.training.data.tables.table import _SPLIT_OF, read
from listwright.training.pipeline import steps
from listwright.training.recipe import config
from listwright.training.recipe.data import TableData, TableSplit
from listwright.training.recipe.options import TABLES, recipe_for
from listwright_lab import experiment

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())
PROGRAMS = {"diagnose": diagnose, "fit": fit, "tune": tune, "experiment": experiment}


def test_its_commands_parse_and_need_no_recipe_for_an_own_table():
    commands = re.findall(r"^listwright (\w+) (.*)$", PAGE, flags=re.MULTILINE)
    assert {name for name, _ in commands} == set(PROGRAMS)
    for name, command in commands:
        options = PROGRAMS[name]._parser().parse_args(shlex.split(command))
        assert recipe_for(options.recipe, options.data).name == (options.recipe or "table")


def test_its_recipe_is_one(tmp_path):
    (piece,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    path = tmp_path / "own.toml"
    path.write_text(f'name = "own"\nabout = "x"\n{piece}[model]\nkind = "qilcm"\n')
    data = config.load(str(path)).data
    assert data.split == TableSplit(by="time", column="searched_at")
    assert data.defaults == (("price", 0.0), ("carrier", "A5"))
    assert set(re.findall(r"^\| `--\S+` \| `(\w+)`", PAGE, flags=re.MULTILINE)) <= {*TableData.model_fields, "column"}


@pytest.mark.parametrize("program", PROGRAMS.values())
def test_every_option_of_tables_is_on_the_page(program):
    said = program._parser().format_help()
    tables = said.split("tables:")[1].split("\n\n")[0]
    for option in re.findall(r"^  (--[\w-]+)", tables, flags=re.MULTILINE):
        assert f"`{option}" in PAGE, option
    (default,) = re.findall(r"^  (--[\w-]+ \S+)", said.split("features:")[1].split("\n\n")[0], flags=re.MULTILINE)
    assert f"`{default}`" in PAGE


def test_names_of_splits_and_of_files_are_the_codes():
    row = next(line for line in PAGE.splitlines() if line.startswith("- ") and "`validation`" in line)
    assert set(re.findall(r"`(\w+)`", row)) == set(_SPLIT_OF)
    assert all(f"`{end}`" in PAGE.partition("## Columns of a table")[0] for end in TABLES)


def test_the_bounds_of_what_is_pointed_out_are_the_codes():
    for bound in (
        f"need {leaks.FEWEST} training queries, {100 * leaks.NEARLY:.0f} % of which show",
        f"up to {leaks.FEW_CATEGORIES} categories",
        f"At least {100 * leaks.MOSTLY:.0f} % of texts",
        f"more than {100 * (1 - leaks.NEARLY):.0f} % of the numbers",
        f"Over {100 * MOSTLY_UNKNOWN:.0f} % of a column's categories",
        f"at most {steps.MOST_ROWS:,} rows",
    ):
        assert bound in TEXT
    assert 1 / leaks.FEWER_FAILURES == 4, "the page says that a random order fails four times as often"
    row = next(line for line in PAGE.splitlines() if line.startswith("| looks like a time"))
    assert set(re.findall(r"`(\w+)`", row)) > leaks._TIME_WORDS
    assert all(leaks._POSITION.fullmatch(name) for name in ("position", "pos", "rank", "result_rank"))


def test_the_notes_of_the_page_are_the_codes():
    modules = (leaks, load, dataset, features, cells)
    source = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in modules)
    notes = re.findall(r"^\| ([a-z][^|]*?) \|", PAGE.split("| note | when")[1], flags=re.MULTILINE)
    assert notes
    for note in notes[:-1]:
        assert " ".join(note.split()[:4]) in source.replace("{count} of {lists.mixed} ", ""), note


def test_every_word_for_a_missing_value_is_on_the_page():
    row = next(line for line in PAGE.splitlines() if line.startswith("| empty, also in quotes"))
    assert {word.lower() for word in re.findall(r"`([^`]+)`", row)} == MISSING_WORDS - {""}


def test_cells_mean_what_the_page_says():
    pairs = [("2", 2), ("2.0", 2.0), ("true", "TRUE"), ("false", False), ("a", " a "), ("12", "12.0")]
    assert all(spelled(one) == spelled(other) is not None for one, other in pairs)
    assert Feature(name="zip", kind="categorical", categories=("01234",)).code("1234") == 0
    assert spelled("1.10") != spelled("1.1")


def test_a_wide_table_becomes_long_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    (code,) = re.findall(r"```python\n(import pandas.*?)```", PAGE, flags=re.DOTALL)
    (header,) = re.findall(r"# (chooser,.*)$", code, flags=re.MULTILINE)
    Path("wide.csv").write_text(f"{header}\n7,bus,90,5,60,300\n8,air,80,6,70,\n")
    exec(compile(code, "docs/data.md", "exec"))
    spec = TableData(qid="chooser", label="chosen", ignore=("choice",), categorical=("option",))
    found = read(spec, "long.csv").dataset
    assert found.qids == ("7", "8")
    rows = dict(zip(found.schema.names, found.features.T.tolist(), strict=True))
    assert sorted(zip(rows["price"], found.labels.tolist(), strict=True)) == [(5, 1), (6, 0), (80, 1), (90, 0)]
    assert found.schema.features[found.schema.index["option"]].categories == ("air", "bus")
