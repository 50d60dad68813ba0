"""Experiments with their bundles: which run, why others cannot, and whose traffic they have."""

import pytest

from listwright.ranking import bundle
from listwright.ranking.experiments import fraction
from listwright.service.bundles.models import Models
from listwright.service.experiments.experiment_file import parse
from listwright.service.experiments.roster import make_roster
from support.experiments import experiment, written
from support.service.bundles import make_bundle


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("roster")
    current = {
        name: bundle.load(make_bundle(root / name / "1", seed=seed, categorical=name != "narrow"))
        for seed, name in enumerate(("shop", "next", "narrow"))
    }
    return Models(current, aliases={"word": "shop"})


@pytest.fixture
def roster(models, tmp_path):
    return lambda *experiments: make_roster(parse(written(tmp_path / "file.toml", *experiments).read_bytes()), models)


def named(found):
    return [entry.definition.name for entry in found.entries]


def test_names_versions_and_aliases_are_found(roster, models):
    found = roster(
        experiment("split", control="word", challenger="next/1", share=0.5),
        experiment("explore", name="second", control="next"),
    )
    assert (named(found), found.faults) == (["first", "second"], {})
    assert (found.entries[0].control, found.entries[0].challenger) == (models.current["shop"], models.current["next"])
    assert found.entries[1].challenger is None


def test_a_bundle_may_be_compared_with_itself(roster):
    assert named(roster(experiment("split", challenger="shop"))) == ["first"]


@pytest.mark.parametrize(
    ("wrong", "word"),
    [({"challenger": "none"}, "'none'"), ({"control": "shop/9"}, "'9'"), ({"challenger": "narrow"}, "carrier")],
)
def test_what_cannot_run_says_why_and_the_others_keep_their_traffic(roster, models, wrong, word):
    whole = roster(experiment("split", share=0.3), experiment("explore", name="second", share=0.3))
    part = roster(experiment("split", share=0.3, **wrong), experiment("explore", name="second", share=0.3))
    assert named(part) == ["second"]
    assert word in part.faults["first"]
    if "control" not in wrong:
        assert (part.entries[0].low, part.entries[0].high) == (whole.entries[1].low, whole.entries[1].high)


def test_two_words_for_one_control_never_share_traffic(roster):
    found = roster(experiment("split", share=0.5), experiment("explore", name="second", control="word", share=0.5))
    assert named(found) == ["first"]
    assert "first" in found.faults["second"]


def test_keys_go_where_their_hash_lies(roster, models):
    found = roster(experiment("split", share=0.25), experiment("explore", name="second", share=0.5))
    shop, other = models.current["shop"], models.current["next"]
    for number in range(200):
        key = f"unit-{number}"
        at = fraction(key, "", "traffic")
        wanted = "first" if at < 0.25 else "second" if at < 0.75 else None
        entry = found.choose(shop, key)
        assert (entry.definition.name if entry is not None else None) == wanted
        assert found.choose(other, key) is None
