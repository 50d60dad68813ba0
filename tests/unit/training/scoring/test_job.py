"""Offline scoring: the service's answers to the bit, in the order of the rows."""

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError, ScoringError, UnknownStrategyError
from listwright.training.commands import score as command
from listwright.training.scoring.job import Job
from listwright.training.scoring.score import score
from support.service import bundles
from support.service.bundles import CATEGORY, NUMERIC, make_bundle
from support.training.progress import RecordedProgress
from support.training.scored import LENGTHS, answers, job, lists


@pytest.mark.parametrize("ends", [".parquet", pytest.param(".csv", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("given", [".csv", pytest.param(".parquet", marks=pytest.mark.nightly)])
def test_rows_keep_their_order_and_scores_are_those_of_the_service_to_the_bit(folder, tmp_path, given, ends):
    frame, data = lists(LENGTHS), tmp_path / f"rows{given}"
    frame.write_parquet(data) if given == ".parquet" else frame.write_csv(data)
    out = tmp_path / f"out{ends}"
    assert score(job(folder, data, out=out), jobs=2) == (171, 5)
    found = pl.read_parquet(out) if ends == ".parquet" else pl.read_csv(out)
    assert found["note"].to_list() == frame["note"].to_list()
    columns = found.select("score", "rank", "first_stage_score", "strategy").rows()
    assert columns == list(answers(folder, frame))
    assert (found["score"] < 0).sum() == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([data.name, out.name])


@pytest.mark.nightly
def test_letor_text_is_scored_as_the_service_scores_its_numbers(tmp_path, monkeypatch):
    names = ("f1", "f2", "f3")
    monkeypatch.setattr(bundles, "NUMERIC", names)
    monkeypatch.setattr(bundles, "MISSING", "f3")
    numbered = make_bundle(tmp_path / "numbered" / "1", categorical=False)
    values = bundles.rows(np.random.default_rng(0), 171, categorical=False).astype(np.float32)
    ids = np.repeat([f"q{n}" for n in range(len(LENGTHS))], LENGTHS)
    said = [" ".join(f"{d}:{value!r}" for d, value in enumerate(row, 1)) for row in values.tolist()]
    (tmp_path / "rows.txt").write_text("".join(f"1 qid:{qid} {text}\n" for qid, text in zip(ids, said, strict=True)))
    score(Job(numbered, tmp_path / "rows.txt", tmp_path / "out.parquet", part_rows=30), jobs=1)
    found = pl.read_parquet(tmp_path / "out.parquet").select("score", "rank", "first_stage_score", "strategy").rows()
    columns = {name: pl.Series(values[:, d], nan_to_null=True) for d, name in enumerate(names)}
    assert found == list(answers(numbered, pl.DataFrame({"query": ids, **columns}), names))


@pytest.mark.nightly
def test_a_folder_is_scored_into_a_folder_of_parts_and_a_list_may_cross_files(folder, tmp_path):
    frame, data, out = lists(LENGTHS), tmp_path / "days", tmp_path / "scored"
    data.mkdir()
    for n, rows in enumerate((frame[:50], frame[50:])):
        rows.write_parquet(data / f"{n}.parquet")
    assert score(job(folder, data, out=out), jobs=1) == (171, 5)
    found = pl.concat(pl.read_parquet(path) for path in sorted(out.iterdir()))
    assert [path.name for path in sorted(out.iterdir())] == ["0000000.parquet", "0000001.parquet"]
    assert found.select("score", "rank", "first_stage_score", "strategy").rows() == list(answers(folder, frame))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["days", "scored"]


@pytest.mark.nightly
@pytest.mark.parametrize("jobs", [1, 2])
def test_bytes_in_utf8_are_text(folder, tmp_path, jobs):
    frame, data, out = lists(LENGTHS), tmp_path / "rows.parquet", tmp_path / "scored.csv"
    frame.with_columns(pl.col(pl.String).cast(pl.Binary)).write_parquet(data)
    assert score(job(folder, data, out=out), jobs=jobs) == (171, 5)
    found = pl.read_csv(out)
    assert found["query"].to_list() == frame["query"].to_list()
    assert found["score"].to_list() == [one[0] for one in answers(folder, frame)]


@pytest.mark.nightly
def test_a_feature_with_a_default_may_be_absent_and_others_not(folder, data):
    pl.read_parquet(data).drop("price", "bm25").write_parquet(data)
    assert score(job(folder, data), jobs=1).rows == 171
    pl.read_parquet(data).drop("stars").write_parquet(data)
    with pytest.raises(DataError, match="lacks stars"):
        score(job(folder, data, out=data.with_name("o.csv")), jobs=1)


@pytest.mark.nightly
def test_strategy_and_names_of_columns_are_the_callers(folder, data):
    score(job(folder, data, strategy="first_stage", prefix="new_", with_features=True), jobs=1)
    found = pl.read_parquet(data.with_name("out.parquet"))
    assert set(found["new_strategy"]) == {"first_stage"}
    assert found["new_score"].null_count() == 0
    again = job(folder, data.with_name("out.parquet"), out=data.with_name("o.csv"), prefix="new_")
    with pytest.raises(RecipeError, match="has a column 'new_rank' already: say --prefix"):
        score(again, jobs=1)
    with pytest.raises(UnknownStrategyError, match="nonesuch"):
        score(job(folder, data, strategy="nonesuch", out=data.with_name("o.csv")), jobs=1)


@pytest.mark.nightly
@pytest.mark.parametrize("ends", [".parquet", ".csv"])
def test_features_are_written_where_they_are_asked_for(folder, tmp_path, ends):
    frame, data = lists(LENGTHS), tmp_path / f"rows{ends}"
    frame.write_parquet(data) if ends == ".parquet" else frame.write_csv(data)
    added = ["rank", "score", "first_stage_score", "strategy"]
    for number, (asked, kept) in enumerate((({}, ["query", "note"]), ({"with_features": True}, frame.columns))):
        out = tmp_path / f"out{number}.parquet"
        score(job(folder, data, out=out, **asked), jobs=1)
        found = pl.read_parquet(out)
        assert found.columns == [*kept, *added]
        assert found["note"].to_list() == frame["note"].to_list()
    assert found["price"].cast(pl.Float64).to_list() == frame["price"].to_list()


def test_the_query_id_is_written_even_if_it_is_a_feature(folder, data):
    frame = pl.read_parquet(data).with_columns(stars=pl.lit(4.0))
    frame.write_parquet(data)
    score(job(folder, data, qid="stars"), jobs=1)
    assert pl.read_parquet(data.with_name("out.parquet")).columns[:3] == ["query", "note", "stars"]


@pytest.mark.nightly
def test_a_feature_may_have_the_name_of_an_added_column(tmp_path):
    renamed = {"price": "score"}
    names = tuple(renamed.get(name, name) for name in NUMERIC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "NUMERIC", names)
        folder = make_bundle(tmp_path / "shop" / "1")
    frame, data = lists(LENGTHS).rename(renamed), tmp_path / "rows.parquet"
    frame.write_parquet(data)
    score(job(folder, data), jobs=1)
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found["score"].to_list() == [answer[0] for answer in answers(folder, frame, (*names, CATEGORY.name))]
    with pytest.raises(RecipeError, match="has a column 'score' already: say --prefix"):
        score(job(folder, data, with_features=True, out=tmp_path / "o.csv"), jobs=1)


@pytest.mark.nightly
@pytest.mark.parametrize("ends", [".parquet", ".csv"])
def test_only_the_columns_that_were_asked_for_are_written(folder, tmp_path, ends):
    frame, data = lists(LENGTHS).with_columns(rank=pl.lit(0)), tmp_path / f"rows{ends}"
    frame.write_parquet(data) if ends == ".parquet" else frame.write_csv(data)
    score(job(folder, data, columns=("note", "query")), jobs=1)
    found = pl.read_parquet(tmp_path / "out.parquet")
    assert found.columns == ["note", "query", "rank", "score", "first_stage_score", "strategy"]
    assert found["note"].to_list() == frame["note"].to_list()
    assert found["score"].to_list() == [answer[0] for answer in answers(folder, frame)]
    for wrong, says in (("nobody", "--columns nobody: .* has no such column"), ("rank", "has a column 'rank' already")):
        with pytest.raises(RecipeError, match=says):
            score(job(folder, data, columns=(wrong,), out=tmp_path / "o.csv"), jobs=1)


def test_columns_that_changed_are_pointed_out(folder, tmp_path):
    """Most categories unknown, in all parts together; numbers that merge as float32, in the first part."""
    frame, data = lists(LENGTHS), tmp_path / "rows.parquet"
    known = CATEGORY.categories[0]
    carriers = [None if n % 3 == 0 else known if n % 3 == 1 and n < 30 else f"{known}-" for n in range(frame.height)]
    price = 1_700_000_000.0 + np.arange(frame.height)
    changed = frame.with_columns(pl.Series(CATEGORY.name, carriers), pl.Series(NUMERIC[0], price))
    for rows, count in ((frame, 0), (changed, 2)):
        rows.write_parquet(data)
        progress = RecordedProgress()
        score(job(folder, data, out=tmp_path / f"{count}.parquet"), jobs=1, progress=progress)
        assert len(progress.said) == count
    there, unknown = sum(c is not None for c in carriers), sum(c == f"{known}-" for c in carriers)
    assert f"'{CATEGORY.name}' has {unknown} unknown categories in {there} values" in progress.said[0]
    assert f"'{NUMERIC[0]}' has 128 different values in 128 rows" in progress.said[1]


def test_features_that_are_absent_are_pointed_out(folder, tmp_path):
    """As where a column is called otherwise than in training."""
    data, progress = tmp_path / "rows.csv", RecordedProgress()
    lists(LENGTHS).rename({"price": "Price"}).drop("bm25").write_csv(data)
    score(job(folder, data), jobs=1, progress=progress)
    (said,) = progress.said
    assert all(name in said for name in ("price", "bm25", "Price"))


def test_a_failing_stage_is_an_error_and_no_answer(data, tmp_path):
    broken = make_bundle(tmp_path / "shop" / "2", graph="broken")
    pl.read_parquet(data).with_columns(price=0.0).write_parquet(data)
    with pytest.raises(ScoringError, match="query q"):
        score(job(broken, data), jobs=1)
    assert not data.with_name("out.parquet").exists()


def test_columns_and_features_are_not_asked_for_together(capsys):
    with pytest.raises(SystemExit):
        command.main(["b", "--data", "d", "--out", "o", "--columns", "a", "--with-features"])
    assert "--with-features" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [None, ("^note.*$",)])
def test_names_of_columns_and_files_are_no_patterns(folder, tmp_path, columns):
    data = tmp_path / "rows[1].parquet"
    frame = lists(LENGTHS).with_columns(pl.lit(3.0).alias("^note.*$"))
    frame.write_parquet(data)
    score(job(folder, data, columns=columns))
    written = pl.read_parquet(tmp_path / "out.parquet")
    assert written["^note.*$"].to_list() == [3.0] * frame.height
    assert ("note" in written.columns) == (columns is None)


@pytest.mark.parametrize("text", ["", ","])
def test_names_of_columns_are_refused_if_they_are_none(text, capsys):
    with pytest.raises(SystemExit):
        command.main(["b", "--data", "d", "--out", "o", "--columns", text])
    assert "--columns" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_command_says_what_it_wrote_and_what_is_wrong(folder, data, capsys):
    out = data.with_name("o.csv")
    words = [str(folder), "--data", str(data), "--qid", "query", "--out", str(out)]
    assert command.main(words) == 0
    assert "171 rows of 5 lists" in capsys.readouterr().out
    for more, says in (
        ([], "exists already"),
        (["--out", str(out.with_suffix(".xls"))], "expected a name that ends in .parquet or .csv"),
        (["--out", str(out.with_suffix(".parquet")), "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["--out", str(out.with_suffix(".parquet")), "--qid", "nobody"], "no column 'nobody'"),
    ):
        assert command.main([*words, *more]) == 1
        assert says in capsys.readouterr().out.replace("\n", " ")
