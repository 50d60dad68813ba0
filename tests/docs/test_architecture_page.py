"""``docs/architecture.md`` names the steps of a run as the code does, and files that are there."""

import re
import sys

import pytest

from support.pages.figure_blocks import ROOT, page

sys.path.insert(0, str(ROOT / "tools"))
import architecture

PAGE = page("docs/architecture.md")
PATHS = sorted(set(re.findall(r"`((?:ranking|service|training|client|tests|docs)/[\w./]+)`", PAGE)))


@pytest.mark.parametrize("path", PATHS)
def test_what_it_names_is_there(path):
    assert (ROOT / path).exists()


def test_module_tables_are_as_the_docstrings_say():
    assert architecture.with_tables(PAGE) == PAGE
