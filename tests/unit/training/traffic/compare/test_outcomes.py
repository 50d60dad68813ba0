"""Sums of units from judged rows, against what can be counted by hand."""

import math
from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.traffic.compare.compare import _open_experiment, _split_sums, _team_sums, columns_of
from support.one_list import measure
from support.training.judged import row, written


def split(path, metrics, rows):
    return _split_sums(_open_experiment(written(path / "rows.parquet", rows), None, columns_of(metrics)), metrics)


def test_metrics_of_one_query(tmp_path):
    shown = [(1, 0, 0), (2, 1, 2), (3, 3, 1), (4, 1, 0)]
    rows = [row("q", place, label, arm="control", n_buy=buy) for place, label, buy in shown]
    metrics = ("hit", "mrr", "ndcg@10", "ndcg@2", "map", "err@10", "err@2", "n_buy")
    (found,) = split(tmp_path, metrics, rows).rows(named=True)
    gained = 1 / math.log2(3) + 7 / math.log2(4) + 1 / math.log2(5)
    ideal_of_two = 7 / math.log2(2) + 1 / math.log2(3)
    assert (found["unit"], found["queries"], found["hit"], found["mrr"], found["n_buy"]) == ("q", 1, 1.0, 0.5, 3.0)
    assert found["ndcg@10"] == pytest.approx(gained / (ideal_of_two + 1 / math.log2(4)))
    assert found["ndcg@2"] == pytest.approx((1 / math.log2(3)) / ideal_of_two)
    labels, scores = np.array([label for _, label, _ in shown]), -np.arange(4.0)
    for name in metrics[2:-1]:
        assert found[name] == pytest.approx(measure(name, scores, labels)), name


def test_bytes_in_utf8_are_text(tmp_path):
    rows = [row("q", 1, 1, arm="control"), row("r", 1, 0, arm="challenger")]
    path = written(tmp_path / "rows.parquet", rows)
    frame = pl.read_parquet(path)
    frame.with_columns(pl.col(pl.String).cast(pl.Binary)).write_parquet(path)
    found = _split_sums(_open_experiment(path, None, ()), ("hit",))
    assert dict(found.select("arm", "hit").iter_rows()) == {"control": 1.0, "challenger": 0.0}
    assert found["unit"].to_list() == ["q", "r"]


def test_of_a_folder_the_file_that_is_cut_off_is_named_and_folders_are_read(tmp_path):
    rows = [row("q", 1, 1, arm="control"), row("r", 1, 0, arm="challenger")]
    (tmp_path / "2026").mkdir()
    written(tmp_path / "a.parquet", rows[:1])
    path = written(tmp_path / "2026" / "b.parquet", rows[1:])
    assert _split_sums(_open_experiment(tmp_path, None, ()), ("hit",)).height == 2
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"2026/b\.parquet: cannot be read"):
        _open_experiment(tmp_path, None, ())


def test_rows_of_nothing_are_an_error(tmp_path):
    path = written(tmp_path / "rows.parquet", [row("q", 1, 1, arm="control")])
    pl.read_parquet(path).clear().write_parquet(path)
    with pytest.raises(DataError, match="has no rows"):
        _open_experiment(path, None, ())


def test_a_label_above_4_is_as_good_as_can_be(tmp_path):
    rows = [row("q", 1, 0, arm="control"), row("q", 2, 5, arm="control"), row("q", 3, 4, arm="control")]
    (found,) = split(tmp_path, ("err@10",), rows).rows(named=True)
    assert found["err@10"] == 0.5


def test_rows_of_a_list_need_no_order(tmp_path):
    rows = [row("q", place, int(place == 2), arm="control") for place in (3, 1, 2)]
    (found,) = split(tmp_path, ("mrr", "map", "err@5"), rows).rows(named=True)
    assert (found["mrr"], found["map"], found["err@5"]) == (0.5, 0.5, 1 / 32)


def test_a_query_without_a_label_counts_0(tmp_path):
    rows = [row("q", 1, arm="control"), row("r", 1, 1, arm="control", unit="u"), row("s", 1, arm="control", unit="u")]
    found = {
        one["unit"]: one for one in split(tmp_path, ("hit", "mrr", "map", "err@1", "ndcg@5"), rows).rows(named=True)
    }
    assert [found["q"][name] for name in ("hit", "mrr", "map", "err@1", "ndcg@5")] == [0.0] * 5
    assert [found["u"][name] for name in ("queries", "hit", "mrr", "ndcg@5")] == [2, 1.0, 1.0, 1.0]


def test_days_and_arms_are_kept_apart(tmp_path):
    later = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        row("a", 1, 1, arm="control", unit="u"),
        row("b", 1, 0, arm="control", unit="u", served_at=later),
        row("c", 1, 0, arm="challenger", unit="u", served_at=later),
        row("d", 1, 0, arm=None, unit="u"),
    ]
    found = split(tmp_path, ("hit",), rows).select("day", "arm", "queries", "hit").rows()
    assert sorted((day.day, arm, queries, hit) for day, arm, queries, hit in found) == [
        (1, "control", 1, 1.0),
        (2, "challenger", 1, 0.0),
        (2, "control", 1, 0.0),
    ]


def teams(path, rows, credit=None):
    experiment = _open_experiment(written(path / "rows.parquet", rows), None, () if credit is None else (credit,))
    assert experiment.interleaved
    return _team_sums(experiment, credit)


def listed(query, first, labels, **more):
    other = {"control": "challenger", "challenger": "control"}[first]
    return [
        row(query, place, label, team=first if place % 2 else other, **more)
        for place, label in enumerate(labels, start=1)
    ]


def test_credit_follows_the_team(tmp_path):
    rows = [
        *listed("won", "challenger", [1, 0], unit="u"),
        *listed("lost", "challenger", [0, 1], unit="u"),
        *listed("lost again", "control", [2, 1, 1], unit="u"),
        *listed("tied", "control", [1, 1], unit="u"),
        *listed("nothing", "control", [0, 0], unit="u"),
        *[row("alone", place, 1, unit="u") for place in (1, 2)],
    ]
    (found,) = teams(tmp_path, rows).rows(named=True)
    counts = {name: found[name] for name in ("queries", "untold", "credited", "preference", "first", "won", "lost")}
    assert counts == {
        "queries": 5,
        "untold": 1,
        "credited": 4,
        "preference": 0.5 - 0.5 - 0.5,
        "first": 2,
        "won": 1,
        "lost": 2,
    }


def test_credit_may_be_a_column(tmp_path):
    rows = listed("q", "challenger", [1, 0])
    rows[0]["revenue"], rows[1]["revenue"] = 3.0, 10.0
    assert teams(tmp_path, rows)["won"].to_list() == [1]
    assert teams(tmp_path, rows, "revenue")["lost"].to_list() == [1]


def test_what_is_given_back_counts_as_much_as_what_is_earned(tmp_path):
    rows = listed("q", "challenger", [1, 1])
    rows[0]["revenue"], rows[1]["revenue"] = 5.0, -5.0
    (found,) = teams(tmp_path, rows, "revenue").rows(named=True)
    assert (found["credited"], found["preference"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("rows", "name", "complaint"),
    [
        ([row("q", 1)], None, "no row has an arm or a team"),
        (
            [row("q", 1, arm="control"), row("r", 1, arm="control", experiment="b")],
            None,
            r"several experiments \(b, test\)",
        ),
        ([row("q", 1, arm="control")], "b", "--experiment b: .* holds test"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, rows, name, complaint):
    with pytest.raises((DataError, RecipeError), match=complaint):
        _open_experiment(written(tmp_path / "rows.parquet", rows), name, ())


def test_two_candidates_at_one_place_are_refused(tmp_path):
    rows = [row("q", 1, arm="control", unit="u"), row("q", 1, arm="control", unit="u")]
    with pytest.raises(DataError, match="unit 'u' has two candidates at one place"):
        split(tmp_path, ("hit",), rows)


def test_missing_columns_and_files_are_named(tmp_path):
    path = written(tmp_path / "rows.parquet", [{"query_id": "q", "unit": None}])
    with pytest.raises(DataError, match="no column 'served_at' and no column"):
        _open_experiment(path, None, ())
    (tmp_path / "rows.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="no Parquet file"):
        _open_experiment(tmp_path / "rows.csv", None, ())
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: is no Parquet file, and no folder with one"):
        _open_experiment(tmp_path / "empty", None, ())
    with pytest.raises(RecipeError, match="ndcg@0"):
        split(tmp_path, ("ndcg@0",), [row("q", 1, arm="control")])


def test_a_column_of_another_type_is_told_in_one_line(tmp_path):
    rows = [row("q", 1, arm="control", served_at="2026-01-01")]
    with pytest.raises(DataError, match="cannot be read as judged rows") as told:
        split(tmp_path, ("hit",), rows)
    assert "\n" not in str(told.value)
