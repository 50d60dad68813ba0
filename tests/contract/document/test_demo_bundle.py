"""The one bundle that git holds: what a stranger serves first, and what the image serves."""

from pathlib import Path

from listwright.ranking import bundle
from listwright.training.recipe import config
from listwright.training.recipe.config import Recipe

FOLDER = Path(__file__).resolve().parents[3] / "models" / "demo" / "1"


def test_it_loads_and_its_golden_lists_are_reproduced_here():
    assert bundle.load(FOLDER).manifest.name == "demo"


def test_it_was_fitted_by_the_recipe_of_today():
    assert Recipe.model_validate(bundle.load(FOLDER).manifest.recipe) == config.load("demo")
