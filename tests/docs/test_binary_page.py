"""The page on binary requests: its examples run against the demo bundle, its tables say what the code does."""

import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from contract.conftest import Process
from listwright.service.wire.open_inference import OUTPUTS, InferParameters
from listwright.service.wire.schemas import Envelope

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "binary.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def demo():
    service = Process(bundle=ROOT / "models" / "demo" / "1").wait_until_ready()
    yield service.url.removeprefix("http://")
    assert service.stop()[0] == 0


def test_the_examples_run(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make, infer = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    names = {}
    exec(make, names)  # the page's own code
    whole, scores = re.findall(r"^curl .*$", PAGE, re.M)
    answers = []
    for command in (whole, scores):
        run = subprocess.run(
            shlex.split(command.replace("localhost:8000", demo)), capture_output=True, text=True, check=True
        )
        answers.append(run.stdout)
    assert answers[0].count('"index"') == 2
    found = np.load("scores.npy", allow_pickle=False)
    assert found.shape == (3,)
    assert found.sum() == pytest.approx(1.0)
    exec(infer.replace("localhost:8000", demo), names)
    assert np.array_equal(names["result"].as_numpy("scores"), found)
    best = [f"sku-{index + 1}" for index in np.argsort(-found)[:2]]
    assert capsys.readouterr().out.splitlines()[-1] == str(best)
    names["client"].close()


def test_the_tables_are_complete():
    assert re.findall(r"^\| `(\w+)` \| \w+ \| \[(?:L|min\(L, top_n\))\] \|", PAGE, re.M) == list(OUTPUTS)
    for name, datatype in OUTPUTS.items():
        assert f"| `{name}` | {datatype} | [" in PAGE


def section(heading):
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_every_option_is_named():
    words = (ROOT / "docs" / "binary.md").read_text(encoding="utf-8").split("## Request options\n")[1]
    in_query = next(line for line in words.splitlines() if line.startswith("| the query string |"))
    for name in set(Envelope.model_fields) - {"context"}:
        assert f"`{name}`" in in_query
    for name in InferParameters.model_fields:
        assert f"`{name}`" in section("Open Inference Protocol")
