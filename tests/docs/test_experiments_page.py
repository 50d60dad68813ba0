"""``docs/experiments.md`` knows every suite, and its commands parse."""

import re
import shlex
from pathlib import Path

from listwright.training import experiment
from listwright.training.experiments.listwise import plans
from listwright.training.recipe import config

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_every_suite_is_on_the_page():
    named = re.findall(
        r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", PAGE.split("## What is fitted")[0], flags=re.MULTILINE))
    )
    assert named == [*experiment.LISTWISE, *experiment.SPECIALISED]
    assert experiment.LISTWISE == plans.SUITES


def test_commands_parse_and_name_recipes_that_are_there():
    commands = re.findall(r"^listwright experiment (.*?)(?:\s+#.*)?$", PAGE, flags=re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        options = experiment._parser().parse_args(shlex.split(command))
        assert options.recipe is None or options.recipe in config.recipe_names()
