"""``docs/experiments.md`` knows every suite."""

from pathlib import Path

from listwright_lab import experiment
from listwright_lab.suites.listwise import methods

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_every_suite_is_on_the_page():
    suites = [*experiment.LISTWISE, *experiment.SPECIALISED]
    assert [name for name in suites if f"`{name}`" not in PAGE] == []
    assert experiment.LISTWISE == methods.SUITES
