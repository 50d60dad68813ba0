"""``python -m benchmarks.quality`` pools the folds of one command into one table."""

import sys

import numpy as np
import pytest

from benchmarks import quality

RECIPE = """
name = "tiny"
about = "small enough for a test"
[data]
kind = "letor"
[first_stage]
kind = "lambdamart"
trials = 1
max_trees = 10
folds = 2
[model]
kind = "qilcm"
encoder_width = 4
max_epochs = 1
"""


@pytest.fixture
def data(tmp_path):
    """Fifty queries of four candidates."""
    rng = np.random.default_rng(0)
    lines = []
    for query in range(50):
        for _ in range(4):
            x, y = rng.normal(size=2)
            lines.append(f"{int(x + 0.3 * rng.normal() > 0.5)} qid:{query} 1:{x:.4f} 2:{y:.4f}\n")
    path = tmp_path / "data.txt"
    path.write_text("".join(lines))
    return path


def test_folds_become_one_result(data, tmp_path, monkeypatch, capsys):
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(RECIPE)
    saved = {}
    monkeypatch.setattr(quality.machine, "save", lambda name, *rest: saved.update({name: rest}))
    monkeypatch.setattr(sys, "argv", ["quality", str(recipe), "--data", str(data), "--folds", "5"])
    assert quality.main() == 0
    command, result = saved["quality_tiny"]
    assert command == f"python -m benchmarks.quality {recipe} --data PATH --folds 5 --seed 0"
    assert result["queries"] == 50  # every one is tested once
    assert len(result["model_by_fold"]) == len(result["first_stage_by_fold"]) == 5
    assert set(result["gain_of_qilcm_over_first_stage"]["ndcg@10"]) == {"mean", "low", "high"}
    assert "QILCM over first stage, NDCG@10" in capsys.readouterr().out


def test_an_unknown_recipe_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["quality", "nothing", "--data", "nowhere"])
    assert quality.main() == 1
    assert capsys.readouterr().out.startswith("error: ")
