"""Texts of documented arguments stand alone: none is the tail of a sentence that its name would begin."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ranking", "service", "training", "lab", "client/listwright_client", "benchmarks", "tools")
TAIL = re.compile(
    r"(about|above|after|against|among|as|at|before|below|beside|besides|between|beyond|by|during|for|from|in|inside|into"
    r"|of|on|out|over|per|since|than|through|to|under|until|up|upon|with|within|without"
    r"|that|what|when|where|which|who|whom|whose|is|are|has|have)(?![\w-])",
    re.IGNORECASE,
)
SECTION = re.compile(r"^( *)(?:Args|Attributes|Keyword Args):\n((?:\1 +.*\n|\n)*)", re.MULTILINE)


def documented_arguments(docstring):
    """Yield the name and the text of each documented argument."""
    for section in SECTION.finditer(docstring + "\n"):
        lines = [line for line in section[2].split("\n") if line.strip()]
        depth = min((len(line) - len(line.lstrip()) for line in lines), default=0)
        for line in lines:
            entry = re.match(rf" {{{depth}}}([\w*][\w*, ]*?)(?: \([^)]*\))?: (.*)", line)
            if entry:
                yield entry[1], entry[2]


def tails(source):
    """Return line, name and text of each argument whose text does not stand alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for name, text in documented_arguments(ast.get_docstring(node) or ""):
                if TAIL.match(text):
                    yield getattr(node, "lineno", 1), name, text


def test_a_tail_is_noticed():
    source = 'def attend(heads, width):\n    """Attend.\n\n    Args:\n        heads: of each block.\n        width: Number of units.\n    """\n'
    assert [name for _, name, _ in tails(source)] == ["heads"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_text_of_an_argument_is_a_noun_phrase(folder):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: {text}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name, text in tails(path.read_text(encoding="utf-8"))
    ]
    assert found == []
