"""Every line of the threat model names tests, and these exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
SPLIT_SOURCES = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def threats():
    """The rows of its tables."""
    model = PAGE.partition("## Threats")[2].partition("## Limits of the defence")[0]
    return [row for row in model.splitlines() if row.startswith("|") and not row.startswith(("|---", "| attack"))]


def defined_in(path):
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_there_are_threats():
    assert len(threats()) > 20


def test_each_threat_has_a_test():
    assert [row for row in threats() if not SPLIT_SOURCES.findall(row.split("|")[-2])] == []


def test_the_named_tests_exist():
    assert [
        (file, name) for file, name in sorted(set(SPLIT_SOURCES.findall(PAGE))) if name not in defined_in(ROOT / file)
    ] == []
