"""The rules of the house that no linter knows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("listwright", "ranking", "service", "training", "client", "benchmarks", "tools", "tests")
FOLDERS = (*PACKAGES, "docs", "models", ".ci")
SOURCES = {".js", ".py"}
TEXT = SOURCES | {"", ".css", ".json", ".jsonl", ".md", ".sh", ".toml", ".txt", ".yaml"}

# One letter of each in brackets, so that this file does not break its own rules.
MARKS = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b")
MACHINE_PATHS = re.compile(r"(?<![\w.~}$)*-])/(wor[k]|roo[t]|hom[e]|User[s]|opt/wheel[s])/")
HOSTS = re.compile(r"\b[\w.-]*(pypi|pythonhosted|npmjs|debian|pytorch|docker|ghcr|quay)\.(org|com|io)\b")


def files():
    """Every text file of the project, leaving out what is built or fetched."""
    found = [
        path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT | {".py"} and path.name != ".git"
    ]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in TEXT]
    made = {"__pycache__", "build", ".DS_Store", "vendor"}
    return [path for path in found if made.isdisjoint(path.relative_to(ROOT).parts)]


def sources():
    return [path for path in files() if path.suffix in SOURCES and path.relative_to(ROOT).parts[0] in PACKAGES]


def places(pattern):
    """``file:line`` of every match."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_the_project_is_found():
    assert len(sources()) > 30


@pytest.mark.parametrize("pattern", [MARKS, MACHINE_PATHS, HOSTS], ids=["marks", "machine paths", "hosts"])
def test_nothing_unfinished_and_nothing_of_one_machine(pattern):
    assert places(pattern) == []


def test_committed_bundles_stay_small():
    assert (
        sum(path.stat().st_size for path in (ROOT / "models" / "demo" / "1").rglob("*") if path.is_file()) <= 2_500_000
    )
