"""Whoever asks a service needs httpx and NumPy, and nothing of what serves."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

DECLARED = {"httpx", "numpy"}

# What a caller does not have is hidden, so that an import of it fails.
PROBE = """
import sys
sys.path.insert(0, "client")
for name in {hidden}:
    sys.modules[name] = None
import listwright_client
listwright_client.Client("http://127.0.0.1:1").close()
print(*sys.modules)
"""
SERVER = ("listwright", "fastapi", "lightgbm", "onnxruntime", "pydantic", "pydantic_core")


def loaded(hidden):
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(hidden=hidden)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize("more", [(), ("orjson",)])
def test_it_works_without_what_serves(more):
    assert {"httpx", "numpy"} <= loaded((*SERVER, *more))


def test_what_it_needs_is_what_it_declares():
    project = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {needed.partition(">=")[0] for needed in project["dependencies"]} == DECLARED
    assert project["optional-dependencies"] == {"fast": ["orjson>=3.10"]}
    own = set(sys.stdlib_module_names) | DECLARED | {"orjson", "listwright_client"}
    for path in (ROOT / "client" / "listwright_client").glob("*.py"):
        assert roots(ast.parse(path.read_text(encoding="utf-8"))) <= own, path.name


def roots(code):
    """The top names of all imports."""
    found = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    return found
