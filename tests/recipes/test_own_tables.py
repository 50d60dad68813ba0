"""Own tables from the command line: what is printed, kept and refused, with and without a recipe file."""

import json

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.training.commands import fit, tune
from listwright.training.pipeline import run
from listwright_lab import experiment
from support.training.suites import printed_text
from support.training.tiny import TINY

pytestmark = pytest.mark.nightly

NAMES = ("--qid", "search", "--label", "clicked")
BY_TIME = ("--split", "time", "--time-column", "searched_at")
QUERIES = 60


@pytest.fixture(scope="module")
def frame():
    """Searches from the newest to the oldest, one an hour; with a position, and a split that the searches are in."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 9, size=QUERIES)
    query = np.repeat(np.arange(QUERIES), lengths)
    price = rng.normal(size=len(query))
    worth = rng.gumbel(size=len(query)) - price
    best = np.array([worth[query == q].max() for q in range(QUERIES)])
    hours = QUERIES - 1 - query
    return pl.DataFrame(
        {
            "search": [f"s{q:02}" for q in query],
            "searched_at": [f"2024-05-{1 + h // 24:02} {h % 24:02}:00:00" for h in hours],
            "clicked": (worth == best[query]).astype(int),
            "position": np.concatenate([np.arange(1, length + 1) for length in lengths]),
            "price": price.round(3),
            "carrier": rng.choice(["x", "y", "z"], len(query)),
            "part": [("train", "dev", "test")[0 if q < 36 else 1 if q < 48 else 2] for q in query],
        }
    )


@pytest.fixture
def table(frame, tmp_path):
    path = tmp_path / "own.csv"
    frame.write_csv(path)
    return path


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    head, rest = TINY.split("[data]")[0], TINY.split("[first_stage]")[1]
    path.write_text(f'{head}[data]\nkind = "table"\n[first_stage]{rest}')
    return path


def fitted(*arguments):
    return fit.main([*map(str, arguments), "--model", "first_stage"])


def test_a_split_by_time_and_a_leak_are_told_before_the_fit_and_kept(table, recipe, tmp_path, capsys):
    out = tmp_path / "own" / "1"
    options = (*NAMES, *BY_TIME, "--ignore", "part", "--out", out)
    assert fitted(recipe, "--data", table, *options) == 0
    how = (
        "own.csv, split by time (searched_at) 60/20/20, train until 2024-05-02T11:00:00, valid from 2024-05-02T12:00:00 "
        "until 2024-05-02T23:00:00, test from 2024-05-03: training 36 queries / "
    )
    leak = "'position' counts the candidates in row order in 36 of 36 training lists of two or more."
    printed = printed_text(capsys)
    assert printed.index(how) < printed.index(leak) < printed.index("Tuning LightGBM")
    assert f"Data: {how}" in printed
    loaded = bundle.load(out)
    assert loaded.manifest.data.startswith(how)
    assert loaded.manifest.feature_schema.names == ("position", "price", "carrier")
    assert loaded.manifest.recipe["data"]["split"] == {"parts": 5, "by": "time", "column": "searched_at"}
    report = json.loads((out / "report.json").read_text())
    assert report["data"].startswith(how)
    (note,) = report["notes"]
    assert note.startswith(leak)
    page = (out / "report.html").read_text()
    assert "One note on the data from before the fit" in page
    assert "leave it out with --ignore position." in page
    assert how in page


def test_defaults_reach_the_manifest_and_change_nothing_that_is_fitted(table, tmp_path, capsys):
    path, start = tmp_path / "own.toml", ("--data", table, *NAMES, "--ignore", "searched_at,part,position")
    head, rest = TINY.split("[data]")[0], TINY.split("[first_stage]")[1]
    own = '[data]\nkind = "table"\n{}\n[first_stage]'
    manifests = []
    for n, defaults in enumerate(('[data.defaults]\nprice = 1\ncarrier = "y"', "")):
        path.write_text(head + own.format(defaults) + rest)
        given = ("--default", "price=-0.25") if defaults else ()
        assert fitted(path, *start, *given, "--out", tmp_path / "own" / str(n)) == 0
        manifests.append(bundle.load(tmp_path / "own" / str(n)).manifest)
    printed = printed_text(capsys)
    assert printed.count("no missing values, defaults price = -0.25, carrier = y") == 1
    assert [feature.default for feature in manifests[0].feature_schema.features] == [-0.25, "y"]
    assert [feature.default for feature in manifests[1].feature_schema.features] == [None, None]
    assert manifests[0].fingerprint == manifests[1].fingerprint
    assert manifests[0].recipe["data"]["defaults"] == {"price": "-0.25", "carrier": "y"}
    assert (
        "--default price=-0.25" in json.loads((tmp_path / "own" / "0" / "report.json").read_text())["repeat"]["command"]
    )
    for name in ("first_stage.txt", "golden.jsonl"):
        assert (tmp_path / "own" / "0" / name).read_bytes() == (tmp_path / "own" / "1" / name).read_bytes()


@pytest.mark.parametrize("program", ["fit", "tune", "table2", "oracle", "routing"])
def test_a_default_that_does_not_fit_ends_all_before_anything_is_fitted(program, table, tmp_path, capsys):
    main, first = {"fit": (fit.main, []), "tune": (tune.main, [])}.get(program, (experiment.main, [program]))
    columns = (*NAMES, "--ignore", "searched_at,part,position", "--default", "carrier=w")
    out = ["--study" if program == "tune" else "--out", str(tmp_path / "x" / "1")]
    assert main([*first, "--data", str(table), *columns, *out]) == 1
    printed = printed_text(capsys)
    assert "the default of feature 'carrier' is 'w', a category that training never saw; it saw x, y, z" in printed
    assert "numeric features" not in printed
    assert not any((tmp_path / "x").rglob("*")), "nothing is left"


def interrupted(monkeypatch, *arguments):
    """A fit that is stopped once its first stage is there."""

    def stop(*_args, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_bundle", stop)
        assert fitted(*arguments) == 130


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (BY_TIME, ("--split-column", "part", "--ignore", "searched_at"), "recipe"),
        (("--split", "random", "--ignore", "searched_at,part"), BY_TIME, "recipe"),
    ],
)
def test_a_resumed_run_notices_another_split(table, recipe, tmp_path, monkeypatch, capsys, before, after, what):
    start = (recipe, "--data", table, *NAMES)
    out = ("--out", tmp_path / "own" / "1")
    interrupted(monkeypatch, *start, *before, *out)
    assert fitted(*start, *after, *out, "--resume") == 1
    assert f"had another {what}: repeat its command" in printed_text(capsys)
    assert fitted(*start, *before, *out, "--resume") == 0


def test_a_resumed_run_notices_that_files_or_rows_have_changed_places(frame, recipe, tmp_path, monkeypatch, capsys):
    parts = ("train", "dev", "test")
    for part in parts:
        frame.filter(pl.col("part") == part).write_csv(tmp_path / f"{part}.csv")
    out = ("--ignore", "searched_at,part", "--out", tmp_path / "own" / "1")
    files = [f"{split}={tmp_path / part}.csv" for split, part in zip(("train", "valid", "test"), parts, strict=True)]
    interrupted(monkeypatch, recipe, "--data", *files, *NAMES, *out)
    assert "train train.csv, valid dev.csv, test test.csv: training 36 queries" in printed_text(capsys)
    swapped = [files[0], f"valid={tmp_path}/test.csv", f"test={tmp_path}/dev.csv"]
    assert fitted(recipe, "--data", *swapped, *NAMES, *out, "--resume") == 1
    assert "had another data: repeat its command" in printed_text(capsys)
    assert fitted(recipe, "--data", *files, *NAMES, *out, "--resume") == 0


def test_a_search_needs_no_recipe(table, tmp_path, capsys):
    options = (*NAMES, "--split-column", "part", "--ignore", "searched_at,position", "--model", "first_stage")
    command = ["--data", str(table), *options, "--trials", "1", "--study", str(tmp_path / "study")]
    assert tune.main(command) == 0
    printed = printed_text(capsys)
    assert printed.startswith("table-first_stage: own.csv, split by its column part: training 36 queries")
    assert "Note:" not in printed
    at_random = ["--split", "random", "--ignore", "searched_at,position,part"]
    assert tune.main([*command[:6], *at_random, *command[10:]]) == 1
    assert "holds a study with other recipe" in printed_text(capsys)


@pytest.mark.parametrize("program", ["fit", "tune", "table2", "table3", "anomaly", "lambda", "oracle", "routing"])
def test_who_names_no_id_is_told_which_columns_there_are(program, table, tmp_path, capsys):
    main, first = {"fit": (fit.main, []), "tune": (tune.main, [])}.get(program, (experiment.main, [program]))
    out = ["--study" if program == "tune" else "--out", str(tmp_path / "x" / "1")]
    assert main([*first, "--data", str(table), "--label", "clicked", *out]) == 1
    assert (
        f"the column of query ids is not named: pass --qid COL; {table} has search, searched_at, clicked, position, price, carrier, part"
        in printed_text(capsys)
    )
    assert not (tmp_path / "x" / "1" / "parts").exists()


def test_a_suite_needs_no_recipe_and_takes_a_split(table, tmp_path, capsys):
    out = tmp_path / "oracle"
    options = (*NAMES, *BY_TIME, "--ignore", "part", "--specialists", "1")
    assert experiment.main(["oracle", "--data", str(table), *options, "--out", str(out)]) == 0
    printed = printed_text(capsys)
    assert printed.startswith("table: own.csv, split by time (searched_at) 60/20/20")
    assert "Note: 'position' counts the candidates" in printed
    results = pl.read_parquet(out / "results.parquet")
    assert set(results["qid"]) == {f"s{q:02}" for q in range(12)}, "the newest"
    assert results["fold"].unique().to_list() == [1]
    page = (out / "page.html").read_text()
    assert "The first fold: own.csv, split by time (searched_at)" in page
    assert "Pointed out: &#39;position&#39; counts the candidates" in page
    assert experiment.main(["oracle", "--data", str(table), *NAMES, "--out", str(out), "--ignore", "searched_at"]) == 1
    assert "holds results with other" in printed_text(capsys)


def test_a_listwise_suite_takes_one_table_per_split(frame, recipe, tmp_path, capsys):
    sources = []
    for split, part in (("train", "train"), ("valid", "dev"), ("test", "test")):
        frame.filter(pl.col("part") == part).write_parquet(tmp_path / f"{part}.parquet")
        sources.append(f"{split}={tmp_path / part}.parquet")
    options = (*NAMES, "--ignore", "searched_at,part,position", "--seeds", "1", "--jobs", "1")
    out = tmp_path / "table3"
    assert experiment.main(["table3", "--recipe", str(recipe), "--data", *sources, *options, "--out", str(out)]) == 0
    assert set(pl.read_parquet(out / "results.parquet")["qid"]) == {f"s{q}" for q in range(48, 60)}
    assert "tiny: train train.parquet, valid dev.parquet, test test.parquet" in printed_text(capsys)
    assert "The first fold: train train.parquet, valid dev.parquet" in (out / "page.html").read_text()
