"""Shared settings: deterministic property tests, and where the real data and the reference values lie."""

import os
from pathlib import Path

# before LightGBM and torch start theirs: threads that fight over two cores make small fits ten times slower
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

from support import annotated
from support.training.tiny import TINY

ROOT = Path(__file__).resolve().parent.parent

if annotated.ENABLED:  # before the packages under test are imported
    annotated.install()

hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("nightly", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)  # other examples each time
hypothesis.settings.load_profile("gate")


def _folder(variable: str, default: str) -> Path:
    folder = Path(os.environ.get(variable, ROOT.parent / "shared" / default))
    if not folder.is_dir():
        pytest.skip(f"no {default} at {folder}: set {variable} to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def reference_folder() -> Path:
    """Independently computed values."""
    return _folder("LISTWRIGHT_REFERENCE", "reference")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real ranking data."""
    return _folder("LISTWRIGHT_DATA", "data")


@pytest.fixture(scope="session")
def recipe(tmp_path_factory) -> Path:
    """A recipe file that is fitted in seconds."""
    path = tmp_path_factory.mktemp("recipes") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="session")
def fitted(recipe, tmp_path_factory) -> Path:
    """The bundle that it gives, fitted from the command line."""
    from listwright.training.commands import fit

    out = tmp_path_factory.mktemp("models") / "tiny" / "1"
    assert fit.main([str(recipe), "--out", str(out)]) == 0
    return out
