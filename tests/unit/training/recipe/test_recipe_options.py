"""What a command line says about a recipe: which one, the columns of a table, and how it is split."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.ranking.errors import RecipeError
from listwright.training.commands import compare, diagnose, fit, join, score, tune
from listwright.training.console.command import in_list, split_names
from listwright.training.recipe import config
from listwright.training.recipe.data import TableSplit
from listwright.training.recipe.options import recipe_for, recipe_from, with_data_options
from listwright_lab import experiment
from support.strategies import scale_examples

RECIPE = """
name = "shop"
about = "x"
minutes = 0
[data]
kind = "table"
qid = "search"
label = "clicked"
ignore = ["note"]
[data.split]
by = "time"
column = "at"
parts = 4
[model]
kind = "qilcm"
"""


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.toml"
    path.write_text(RECIPE)
    return str(path)


def asked(*arguments, program=fit):
    return recipe_from(program._parser().parse_args(list(arguments)))


def split_of(*arguments):
    data = asked(*arguments).data
    return data.split, data.ignore


@pytest.mark.parametrize(
    ("sources", "name"),
    [
        (["rows.csv"], "table"),
        (["rows.CSV.GZ"], "table"),
        (["train=a.parquet", "valid=b.csv", "test=c.csv"], "table"),
        (["rows.XLSX"], "table"),
        (["rows.jsonl.gz"], "table"),
        (["rows.pq"], "table"),
        (["rows.txt"], "letor"),
        (["train=a.txt", "valid=b.txt", "test=c.txt"], "letor"),
        (["MSLR-WEB10K.zip"], "letor"),
    ],
)
def test_the_recipe_follows_from_the_data(sources, name):
    assert recipe_for(None, sources).name == name
    for program in (fit, tune):
        assert asked("--data", *sources, program=program).name == name


def test_a_first_stage_that_is_not_there_is_refused_before_data_are_read(tmp_path):
    with pytest.raises(RecipeError, match=r"--first-stage .*model\.txt: there is no such file"):
        asked("--data", "rows.txt", "--first-stage", str(tmp_path / "model.txt"))


def test_a_folder_is_known_by_its_parts(tmp_path):
    for part in range(1, 6):
        (tmp_path / f"S{part}.txt.gz").touch()
    assert recipe_for(None, [str(tmp_path)]).name == "mq2008"
    assert asked("--data", str(tmp_path), "--fold", "3").fold == 3


def test_a_name_comes_before_the_data_and_without_either_a_fit_is_the_demo():
    assert recipe_for("planted", []).name == "planted"
    assert recipe_for("letor", ["rows.csv"]).name == "letor"
    assert asked().name == asked(program=tune).name == "demo"
    with pytest.raises(RecipeError, match="--recipe planted"):
        recipe_for(None, [])


def test_a_suite_takes_columns_and_splits_as_a_fit_does():
    options = [
        "--qid",
        "search",
        "--label",
        "clicked",
        "--categorical",
        "a,b",
        "--split",
        "time",
        "--time-column",
        "at",
    ]
    given = experiment._parser().parse_args(["table2", "--data", "own.csv", *options])
    recipe = with_data_options(recipe_for(given.recipe, given.data), given)
    assert recipe == asked("--data", "own.csv", *options)
    assert (recipe.data.qid, recipe.data.label, recipe.data.categorical) == ("search", "clicked", ("a", "b"))
    assert recipe.data.split == TableSplit(by="time", column="at")


@pytest.mark.parametrize(
    ("arguments", "split", "ignore"),
    [
        ([], TableSplit(by="time", column="at", parts=4), ("note",)),
        (["--split", "time"], TableSplit(by="time", column="at", parts=4), ("note",)),
        (["--time-column", "day"], TableSplit(by="time", column="day", parts=4), ("note", "at")),
        (["--split", "random"], TableSplit(parts=4), ("note", "at")),
        (["--split-column", "fold"], TableSplit(by="column", column="fold", parts=4), ("note", "at")),
        (["--split", "random", "--ignore", "at"], TableSplit(parts=4), ("note", "at")),
    ],
)
def test_options_change_what_a_recipe_says_of_the_split(shop, arguments, split, ignore):
    """A column that the recipe splits by stays no feature when the command line splits otherwise."""
    assert split_of(shop, *arguments) == (split, ignore)


@pytest.mark.parametrize("program", [fit, tune, diagnose, experiment])
@pytest.mark.parametrize("option", ["categorical", "ignore"])
def test_columns_add_up_over_options_and_to_those_of_the_recipe(tmp_path, program, option):
    path = tmp_path / "own.toml"
    path.write_text(f'name = "own"\nabout = "x"\n[data]\nkind = "table"\n{option} = ["x"]\n')
    suite = ["table2", "--recipe"] if program is experiment else []
    words = [*suite, str(path), f"--{option}", "y", f"--{option}", '"price, net", x', f"--{option}", "z,y"]
    options = program._parser().parse_args(words)
    recipe = with_data_options(recipe_for(options.recipe, options.data), options)
    assert getattr(recipe.data, option) == ("x", "y", "price, net", "z")


@pytest.mark.parametrize(
    ("program", "words", "option", "texts", "found"),
    [
        (fit, [], "data", ["train=a", "valid=b", "test=c"], ["train=a", "valid=b", "test=c"]),
        (fit, [], "gains", ["0,1", "3"], ["0", "1", "3"]),
        (fit, [], "monotone", ["a=1", "b=-1"], ["a=1", "b=-1"]),
        (diagnose, [], "default", ["a=1", "b=2,5"], ["a=1", "b=2,5"]),
        (experiment, ["oracle"], "data", ["a.txt", "b.txt"], ["a.txt", "b.txt"]),
        (experiment, ["oracle"], "folds", ["1,2", "3"], ["1", "2", "3"]),
        (experiment, ["oracle"], "specialists", ["2", "5"], ["2", "5"]),
        (experiment, ["table2"], "methods", ["mlp", "dcm,qilcm"], ["mlp", "dcm", "qilcm"]),
        (experiment, ["table3"], "shifts", ["0", "1,2"], ["0", "1", "2"]),
        (
            score,
            ["b", "--data", "d", "--out", "o"],
            "columns",
            ["offer,shop", '"net, eur"'],
            ["offer", "shop", "net, eur"],
        ),
        (compare, ["rows"], "metric", ["ndcg@5", "hit,revenue"], ["ndcg@5", "hit", "revenue"]),
        (join, ["--served", "s"], "events", ["a", "b"], [Path("a"), Path("b")]),
    ],
)
def test_a_list_option_that_is_given_twice_adds_up(program, words, option, texts, found):
    given = [word for text in texts for word in (f"--{option}", text)]
    assert getattr(program._parser().parse_args([*words, *given]), option) == found


@given(st.lists(st.text(min_size=1), min_size=1))
@settings(max_examples=scale_examples(100))
def test_any_name_can_stand_in_a_list(listed):
    quoted = (name.replace('"', '""') for name in listed)
    assert split_names(" , ".join(f'"{name}"' for name in quoted)) == tuple(listed)
    (text,) = shlex.split(in_list(listed[0]))
    assert split_names(text) == (listed[0],)


@pytest.mark.parametrize(
    ("text", "listed"),
    [("a, b,", ("a", "b")), ('price["eur"],b', ('price["eur"]', "b")), ('5" tv,"x', ('5" tv', '"x'))],
)
def test_quotes_within_a_name_are_part_of_it(text, listed):
    assert split_names(text) == listed


@pytest.mark.parametrize("text", ["", " , "])
def test_a_list_without_a_name_is_none(text, capsys):
    with pytest.raises(SystemExit):
        fit._parser().parse_args(["--ignore", text])
    assert "--ignore" in capsys.readouterr().err


def test_a_time_column_need_not_be_known_before_the_table_is():
    assert split_of("table", "--split", "time")[0] == TableSplit(by="time")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["table", "--time-column", "at"], "--time-column at is what --split time goes by: add --split time"),
        (["table", "--split", "random", "--time-column", "at"], "--time-column at is what --split time goes by"),
        (["table", "--split", "time", "--split-column", "fold"], "--split-column says itself how to split"),
        (["table", "--time-column", "at", "--split-column", "fold"], "--split-column says itself how to split"),
        (["demo", "--qid", "x"], "--qid names a column, but recipe 'demo' reads no table"),
        (["letor", "--split-column", "fold"], "--split-column names a column, but recipe 'letor' reads no table"),
        (["letor", "--split", "time"], "--split splits a table, but recipe 'letor' reads no table"),
        (["--data", "rows.txt", "--qid", "x"], "--qid names a column, but recipe 'letor' reads no table"),
    ],
)
def test_options_that_make_no_sense_together(arguments, says):
    with pytest.raises(RecipeError, match=says):
        asked(*arguments)


@pytest.mark.parametrize(
    ("split", "says"),
    [
        ('by = "column"\ncolumn = 3', r"data\.split\.column"),
        ('column = "at"', "a random split looks at none"),
        ('by = "month"', r"split\.by: Input should be 'random', 'time' or 'column'"),
    ],
)
def test_a_recipe_that_splits_wrongly_is_told_where(tmp_path, split, says):
    path = tmp_path / "own.toml"
    path.write_text(f'name = "own"\nabout = "x"\n[data]\nkind = "table"\n[data.split]\n{split}\n')
    with pytest.raises(RecipeError, match=says):
        config.load(str(path))


@pytest.mark.parametrize(
    ("suite", "arguments", "folds"),
    [
        ("table2", ["own.csv"], 1),
        ("oracle", ["own.csv"], 5),
        ("oracle", ["own.csv", "--split", "time", "--time-column", "at"], 1),
        ("routing", ["own.csv", "--split-column", "fold"], 1),
        ("oracle", ["train=a.csv", "valid=b.csv", "test=c.csv"], 1),
        ("oracle", ["train=a.txt", "valid=b.txt", "test=c.txt"], 1),
        ("oracle", ["a.txt", "b.txt"], 5),
    ],
)
def test_data_that_are_split_already_have_one_fold(suite, arguments, folds):
    options = experiment._parser().parse_args([suite, "--data", *arguments])
    recipe = with_data_options(recipe_for(None, options.data), options)
    assert experiment._folds_of(suite, recipe, options.data) == folds


def test_what_tells_data_from_others_knows_which_file_is_which_split(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    one = [experiment._contents(f"{split}={tmp_path / name}") for split, name in (("train", "a"), ("test", "b"))]
    other = [experiment._contents(f"{split}={tmp_path / name}") for split, name in (("test", "a"), ("train", "b"))]
    assert [name for name, _ in one] == ["train=a", "test=b"]
    assert [digest for _, digest in one] == [digest for _, digest in other]
    assert experiment._contents(str(tmp_path / "a"))[0] == "a"
