"""Every ``python -m`` of the pages names a program, and every ``listwright`` of them a command."""

import re

import pytest

from listwright.command import COMMANDS
from support.pages.figure_blocks import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "docs").rglob("*.md")]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
MODULES = sorted(set(re.findall(r"python -m ((?:listwright|ranking|service|training|benchmarks)[.\w]*\w)", TEXT)))
NAMED = sorted(set(re.findall(r"^listwright ([a-z]+)", TEXT, re.M)))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_a_program(module):
    path = ROOT / module.replace(".", "/")
    program = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    assert program.is_file()
    assert program.name == "__main__.py" or '__name__ == "__main__"' in program.read_text(encoding="utf-8")


def test_a_command_is_one_of_listwright():
    assert len(NAMED) > 4
    assert set(NAMED) <= set(COMMANDS)
