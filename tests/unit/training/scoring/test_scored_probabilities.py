"""Offline scores with probabilities, and ranked by weights of goals."""

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import RecipeError, ScoringError
from listwright.training.commands import score as command
from listwright.training.scoring.job import COLUMNS, Job
from listwright.training.scoring.run import inputs
from listwright.training.scoring.worker import lists_of, rank_rows
from support.service.bundles import make_bundle
from support.training.scored import LENGTHS, lists


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A bundle with probabilities and goals."""
    folder = tmp_path_factory.mktemp("models") / "shop" / "2"
    return make_bundle(folder, defaults={"price": 0.5}, probability="relevance", goals={"margin": 0.0})


@pytest.mark.parametrize("weights", [None, {"margin": 3.0}])
def test_probabilities_and_ranks_are_those_of_the_reranker(several, weights):
    served, frame = bundle.load(several), lists(LENGTHS)
    scored, _ = rank_rows(frame, served, "query", probability=True, weights=weights, prefix="new_")
    found = lists_of(frame, served.manifest.feature_schema, "query")
    rows = np.asarray(found.features).astype(np.float32)
    for begin, end in zip(found.offsets[:-1], found.offsets[1:], strict=True):
        ranking = served.reranker.rerank(CandidateList(rows[begin:end]), probability=True, weights=weights)
        of_list = scored[int(begin) : int(end)]
        np.testing.assert_array_equal(of_list["new_probability"].to_numpy(), ranking.probability)
        np.testing.assert_array_equal(of_list["new_rank"].to_numpy(), ranking.ranks)


def test_without_the_option_nothing_is_added(several):
    served, frame = bundle.load(several), lists(LENGTHS)
    plain, asked = (rank_rows(frame, served, "query", probability=asked)[0] for asked in (False, True))
    assert plain.columns == [*frame.columns, *COLUMNS]
    assert asked.drop("probability").equals(plain)


def test_weights_change_ranks(several):
    served, frame = bundle.load(several), lists(LENGTHS)
    plain, other = (
        rank_rows(frame, served, "query", weights=weights)[0]["rank"] for weights in (None, {"margin": 9.0})
    )
    assert not plain.equals(other)


def test_the_command_writes_the_column(several, data, tmp_path):
    words = [str(several), "--data", str(data), "--qid", "query", "--jobs", "1"]
    for name in ("scored.parquet", "scored.csv"):
        more = ["--probability", "--weights", "margin=0.5", "--out", str(tmp_path / name)]
        assert command.main([*words, *more]) == 0
    whole = pl.read_parquet(tmp_path / "scored.parquet")
    expected, _ = rank_rows(
        pl.read_parquet(data), bundle.load(several), "query", probability=True, weights={"margin": 0.5}
    )
    assert whole["probability"].equals(expected["probability"])
    assert pl.read_csv(tmp_path / "scored.csv")["probability"].to_numpy() == pytest.approx(
        whole["probability"].to_numpy()
    )
    with_column = tmp_path / "with.parquet"
    pl.read_parquet(data).with_columns(probability=0.5).write_parquet(with_column)
    again = [
        str(several),
        "--data",
        str(with_column),
        "--qid",
        "query",
        "--probability",
        "--out",
        str(tmp_path / "x.csv"),
    ]
    assert command.main(again) == 1, "a column of that name is there already"


def test_a_bundle_without_them_is_refused_at_once(folder, data, tmp_path):
    for options, says in (({"probability": True}, "--probability"), ({"weights": {"margin": 1.0}}, "--weights")):
        with pytest.raises(RecipeError, match=says):
            inputs(Job(folder, data, tmp_path / "out.csv", qid="query", **options))


def test_a_list_without_probabilities_is_not_passed_over(folder):
    with pytest.raises(ScoringError, match="not calibrated"):
        rank_rows(lists(LENGTHS), bundle.load(folder), "query", probability=True)
