"""What a recipe must not say, told before anything is fitted."""

import sys

import pytest

from listwright.ranking.errors import RecipeError
from listwright.training.recipe import config
from listwright.training.recipe.data import read_propensity
from listwright.training.recipe.model import QilcmSpec

TABLE = {"name": "x", "data": {"kind": "table"}}


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"first_stage": {"kind": "lambdamart", "relative": ["z", "z"]}}, "relative: .*names a kind of column twice"),
        (
            {"model": {"kind": "qilcm", "ndcg_at": 1}, "rivals": {"qilcm2": {"kind": "qilcm2"}}},
            "rivals.qilcm2.ndcg_at = 10, but model.ndcg_at = 1: all must .* be measured alike",
        ),
        (
            {"model": {"kind": "qilcm", "cutoff": 5}, "rivals": {"mlp": {"kind": "mlp"}}},
            "rivals.mlp.cutoff = 100, but model.cutoff = 5",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(parts, says):
    with pytest.raises(RecipeError, match=says):
        config.of(TABLE | parts, "x")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"first_stage": {"kind": "lambdamart", "trails": 3}}, "x: first_stage.trails: .*; did you mean trials?"),
        ({"model": {"kind": "qilcm", "cutof": 5}}, "x: model.cutof: there is no such field; did you mean cutoff?"),
        ({"sead": 1}, "x: sead: there is no such field; did you mean seed?"),
        ({"sead": 1, "model": {"kind": "qilcm", "cutoff": 0}}, "model.cutoff: .* greater than .* sead: there is no"),
    ],
)
def test_a_misspelled_field_gets_the_name_of_one_that_there_is(parts, says):
    with pytest.raises(RecipeError, match=says):
        config.of(TABLE | parts, "x")


def test_a_section_is_not_repeated_word_for_word():
    with pytest.raises(RecipeError) as refused:
        config.of({"name": "x", "data": {"kind": "table", "gains": [0, -1]}}, "x")
    assert "label 1 gains -1" in str(refused.value)
    assert "drop_constant" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "seed = " + "9" * 5000, "seed = " + "9" * 4000, "seed = 0x" + "f" * 5000]
)
def test_a_recipe_that_python_gives_up_on_is_an_error_with_its_name(tmp_path, text):
    (tmp_path / "deep.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"deep\.toml"):
        config.load(str(tmp_path / "deep.toml"))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"positions": ' + "9" * 5000 + "}", '{"positions": [1' + "0" * 4000 + "]}"]
)
def test_propensities_that_python_gives_up_on_are_an_error_with_their_name(tmp_path, text):
    (tmp_path / "deep.json").write_text(text)
    with pytest.raises(RecipeError, match=r"deep\.json"):
        read_propensity(tmp_path / "deep.json", column="position", clip=0.1)


@pytest.mark.parametrize("pairs", ["all", None])
def test_all_pairs_stay_all_pairs(pairs):
    """TOML has no null, and what is None would be left out of what a search writes."""
    spec = QilcmSpec(confusion_pairs=pairs)
    assert spec.model_dump(exclude_none=True)["confusion_pairs"] == "all"
    assert QilcmSpec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize("parts", [{"model": {"kind": "dcm"}}, {"choice": {"second_stages": ["qilcm", "dlcm"]}}])
def test_a_rival_without_the_laboratory_is_refused_before_the_fit(parts, monkeypatch):
    config.of(TABLE | parts, "here")
    monkeypatch.setitem(sys.modules, config.LAB, None)
    with pytest.raises(RecipeError, match=r"model 'd[lc]\w+' comes with listwright-lab"):
        config.of(TABLE | parts, "here")
