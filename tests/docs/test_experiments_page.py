"""``docs/experiments.md`` knows every suite."""

import re
from pathlib import Path

from listwright.training import experiment
from listwright.training.suites.listwise import plans

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_every_suite_is_on_the_page():
    named = re.findall(
        r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", PAGE.split("## What is fitted")[0], flags=re.MULTILINE))
    )
    assert named == [*experiment.LISTWISE, *experiment.SPECIALISED]
    assert experiment.LISTWISE == plans.SUITES
