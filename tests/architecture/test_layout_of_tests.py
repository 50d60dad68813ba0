"""Where tests lie, and what they may import."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
UNIT = TESTS / "unit"
MODULES = sorted(path for path in TESTS.rglob("*.py") if path.name.startswith("test_") or path.name == "conftest.py")
NAMES = {path.stem for path in MODULES}
LATER = {"docs"}
"""Folders whose modules still import from others."""


def imported(source):
    """Dotted names of all that is imported, wherever it stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def of_tests(source):
    """Test modules among what is imported."""
    return [name for name in imported(source) if not NAMES.isdisjoint(name.split("."))]


def folders(root):
    """All folders below that hold modules, as paths from there."""
    return sorted({path.parent.relative_to(root) for path in root.rglob("*.py")} - {Path()})


def missing(root, packages):
    """Folders of tests that name none of the packages."""
    return [str(folder) for folder in folders(root) if not (packages / folder).is_dir()]


def test_no_test_module_imports_another():
    """What several need lies in ``tests/support``; fixtures lie in a ``conftest.py``."""
    found = {str(path.relative_to(TESTS)): of_tests(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {path: names for path, names in found.items() if names and path.split("/")[0] not in LATER} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from contract.test_workers import ask",
        "from contract import test_workers",
        "import contract.test_workers as shared",
        "from contract.conftest import live",
        "def f():\n    from test_leaks import found",
    ],
)
def test_an_import_of_a_test_module_is_noticed(line):
    assert of_tests(line)
    assert not of_tests("from support.service.bundles import make_bundle\nimport pytest")


def test_unit_tests_mirror_the_packages():
    """``tests/unit/training/data`` tests ``training/data``."""
    assert len(folders(UNIT)) > 30
    assert missing(UNIT, TESTS.parent) == []


def test_a_folder_that_no_package_has_is_noticed(tmp_path):
    for folder in ("training/data", "training/drawer"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "test_it.py").touch()
    assert missing(tmp_path, TESTS.parent) == ["training/drawer"]
