"""What a file of experiments may say, and what is said of one that is wrong."""

import pytest

from listwright.service.experiments.experiment_file import MOST, ExperimentFileError, parse
from support.experiments import experiment, written


def parsed(tmp_path, *experiments):
    return parse(written(tmp_path / "experiments.toml", *experiments).read_bytes())


@pytest.mark.parametrize("kind", ["shadow", "split", "interleave", "explore"])
def test_a_short_definition_is_enough(tmp_path, kind):
    (found,) = parsed(tmp_path, experiment(kind)).experiment
    assert (found.name, found.kind, found.share, found.draw_salt) == ("first", kind, 1.0, "first")


def test_an_empty_file_has_no_experiments():
    assert parse(b"").experiment == []


def test_whole_numbers_are_shares_and_a_salt_is_used(tmp_path):
    (found,) = parsed(tmp_path, experiment("split", share=1, salt="s", challenger_share=0.25)).experiment
    assert (found.share, found.draw_salt, found.challenger_share) == (1.0, "s", 0.25)


@pytest.mark.parametrize(
    ("wrong", "places"),
    [
        ([experiment("split", share=0)], ["experiment 'first'", "share"]),
        ([experiment("split", share=1.5)], ["experiment 'first'", "share"]),
        ([experiment("split", challenger_share=1)], ["challenger_share"]),
        ([experiment("canary")], ["kind"]),
        ([experiment("split", name="a b")], ["name"]),
        ([experiment("split", control="../x")], ["control"]),
        ([experiment("split", challenger="a/b/c")], ["challenger"]),
        ([experiment("split", max_failures=0)], ["max_failures"]),
        ([experiment("split", k=5)], ["experiment 'first'", "has no k"]),
        ([experiment("interleave", challenger_share=0.1)], ["has no challenger_share"]),
        ([experiment("explore", k=1)], ["k"]),
        ([{**experiment("explore"), "challenger": "next"}], ["has no challenger"]),
        ([{"name": "first", "kind": "split", "control": "shop"}], ["needs a challenger"]),
        ([experiment("split", colour="red")], ["unknown field 'colour'"]),
        ([experiment("split", chalenger="next")], ["did you mean challenger?"]),
        ([experiment("split"), experiment("shadow")], ["two experiments", "'first'"]),
        ([experiment("split", share=0.6), experiment("shadow", name="b", share=0.6)], ["shop", "1.2"]),
        ([experiment("split", name=f"e{n}", control=f"c{n}") for n in range(MOST + 1)], ["experiment", str(MOST)]),
    ],
)
def test_what_is_wrong_is_named(tmp_path, wrong, places):
    with pytest.raises(ExperimentFileError) as refused:
        parsed(tmp_path, *wrong)
    assert [place for place in places if place not in str(refused.value)] == []


@pytest.mark.parametrize("content", [b"[[experiment]", b"\xff", b"experiment = 3", b"[experiment]\nname = 'a'"])
def test_what_is_no_such_file_is_refused(content):
    with pytest.raises(ExperimentFileError):
        parse(content)


def test_experiments_of_other_controls_have_traffic_of_their_own(tmp_path):
    found = parsed(tmp_path, experiment("split"), experiment("split", name="b", control="other"))
    assert [one.share for one in found.experiment] == [1.0, 1.0]
