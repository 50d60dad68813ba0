"""Every ``python -m`` of the pages names a program, and every ``listwright`` of them a command whose words parse."""

import json
import re
import shlex
from importlib import import_module

import pytest

from listwright.command import COMMANDS
from listwright.training.recipe import config
from support.pages.figure_blocks import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "docs").rglob("*.md")]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
COMMANDS_OF_RESULTS = [json.loads(path.read_text(encoding="utf-8"))["command"] for path in RESULTS]
TEXT = "\n".join([*(path.read_text(encoding="utf-8") for path in PAGES), *COMMANDS_OF_RESULTS])
MODULES = sorted(set(re.findall(r"python -m ((?:listwright|ranking|service|training|benchmarks)[.\w]*\w)", TEXT)))
COMMAND_LINES = sorted(set(re.findall(r"^listwright ([a-z]+)(.*?)(?:\s+#.*)?$", TEXT.replace("\\\n", " "), re.M)))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_a_program(module):
    path = (ROOT / "lab" if module.startswith("listwright_lab") else ROOT) / module.replace(".", "/")
    program = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    assert program.is_file()
    assert program.name == "__main__.py" or '__name__ == "__main__"' in program.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "words"), COMMAND_LINES)
def test_a_command_is_one_of_listwright_and_its_words_parse(name, words):
    module = import_module(COMMANDS[name].module)
    if hasattr(module, "_parser"):  # the others read their words within main
        recipe = getattr(module._parser().parse_args(shlex.split(words)), "recipe", None)
        assert recipe in (None, "NAME", *config.recipe_names()) or recipe.endswith(".toml")
