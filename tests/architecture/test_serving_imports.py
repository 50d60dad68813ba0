"""What a service loads: no training library ever, and what a setting switches on only where it is set."""

import os
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
OPTIONAL = (
    "fastavro",
    "grpc",
    "listwright.ranking.explaining.explain",
    "listwright.service.events",
    "listwright.service.experiments",
    "listwright.service.explaining",
    "listwright.service.grpc",
    "listwright.service.ui",
    "listwright.service.wire.explain_schemas",
    "redis",
)
"""Modules and packages that a setting switches on."""

# LightGBM itself takes scikit-learn and pandas where it finds them, and structlog takes rich. They are hidden, as they
# are absent from the image; an import of our own would then fail.
PROBE = """
import sys
sys.modules["sklearn"] = sys.modules["pandas"] = sys.modules["rich"] = None
{statement}
print(*(name for name, module in sys.modules.items() if module is not None))
"""
APP = """
from pathlib import Path
import numpy as np
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.service import __main__
from listwright.service.app import create_app, server_of
from listwright.service.settings import Settings
loaded = bundle.load(Path("models/demo/1"))
app = create_app(Settings(bundle="models/demo/1"{settings}), models=loaded)
server_of(app)
loaded.reranker.rerank(CandidateList(np.zeros((2, len(loaded.reranker.schema)), dtype=np.float32)))
if app.service.served_log:
    app.service.served_log.close()
"""


def loaded_after(statement, **environment):
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_a_service_without_settings_loads_neither_what_trains_nor_what_is_off(tmp_path):
    home = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    loaded = loaded_after(APP.format(settings=""), **home)
    assert list(tmp_path.iterdir()) == [], "libraries keep something, perhaps for their makers"
    assert "listwright.service.app" in loaded
    assert loaded.isdisjoint(TRAINING)
    assert [name for name in sorted(loaded) if name.startswith((*OPTIONAL, "listwright.ranking.explaining"))] == []


def test_settings_load_what_they_switch_on(tmp_path):
    settings = (
        f", served_log={str(tmp_path)!r}, events_log={str(tmp_path)!r}"
        ", experiments='experiments.toml', explain=True, grpc_port=0, ui=True"
    )
    loaded = loaded_after(APP.format(settings=settings))
    assert loaded.isdisjoint(TRAINING)
    absent = [prefix for prefix in OPTIONAL if not any(name.startswith(prefix) for name in loaded)]
    assert absent == ["listwright.ranking.explaining.explain", "redis"], (
        "another process explains; no setting names an address"
    )


def test_the_probe_notices_an_import_of_a_hidden_library():
    with pytest.raises(AssertionError, match="sklearn"):
        loaded_after("import sklearn")
