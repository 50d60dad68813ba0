"""What serves must not load what trains: run where the training libraries are installed, in a fresh process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAINING = (
    "listwright.training",
    "torch",
    "onnx",
    "onnxscript",
    "optuna",
    "polars",
    "rich",
    "matplotlib",
    "sklearn",
    "pandas",
)

# LightGBM itself takes scikit-learn and pandas where it finds them, and structlog takes rich. They are hidden, as they
# are absent from the image; an import of our own would then fail.
PROBE = f"""
import sys
sys.modules["sklearn"] = sys.modules["pandas"] = sys.modules["rich"] = None
{{statement}}
print(*(name for name in {TRAINING} if sys.modules.get(name) is not None))
"""


def loaded_after(statement):
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.parametrize("module", ["listwright.service.app", "listwright.service.__main__"])
def test_the_service_loads_no_training_library(module):
    assert loaded_after(f"import {module}") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "listwright.training"])
def test_the_probe_notices(name):
    assert name in loaded_after(f"import listwright.service.app, {name}")


def test_the_probe_notices_an_import_of_a_hidden_library():
    with pytest.raises(AssertionError, match="sklearn"):
        loaded_after("import sklearn")
