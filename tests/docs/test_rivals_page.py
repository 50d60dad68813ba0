"""What ``docs/rivals.md`` shows runs, and names every model and loss there is."""

import json
import re
from pathlib import Path

import pytest
import torch

from listwright.training import fit, losses
from listwright.training.recipe import config
from listwright.training.recipe.model import MODEL_NAMES, named

LOSSES = {*losses.__all__} - {"log_likelihood"}  # which has a page of its own, and takes no padding
PAGE = (Path(__file__).parents[2] / "docs" / "rivals.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("loss", [name for name in sorted(LOSSES) if name != "confusion_loss"])
def test_the_example_learns_with_every_loss(loss):
    (code,) = blocks("python")
    assert len(code.splitlines()) <= 13
    torch.manual_seed(0)
    first, last = {}, {}
    exec(code.replace("plackett_luce", loss).replace("range(10)", "range(1)"), first)
    torch.manual_seed(0)
    exec(code.replace("plackett_luce", loss), last)
    assert last["loss"].item() < first["loss"].item()


def test_the_table_names_every_model_and_what_it_is_called_in_a_recipe():
    rows = re.findall(
        r"^\| `([\w-]+)` \| `(kind|variant|query_norm) = \"(\w+)\"` \| .* \| `(\w+)` \|$", PAGE, flags=re.MULTILINE
    )
    assert [row[0] for row in rows] == list(MODEL_NAMES)
    like = config.load("demo").model
    for name, field, value, strategy in rows:
        model = named(name, like)
        assert getattr(model, field) == value
        assert model.kind == strategy


def test_the_recipe_on_the_page_is_one(tmp_path):
    recipe, rival = blocks("toml")
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\nabout = "x"\n[data]\nkind = "synthetic"\n' + recipe)
    assert config.load(str(path)).model.kind == "dlcm"
    path.write_text('name = "own"\nabout = "x"\n[data]\nkind = "synthetic"\n' + rival)
    assert config.load(str(path)).model_named("dlcm").learning_rate == 0.0005


def test_the_losses_of_the_page_are_all_there_are():
    assert set(re.findall(r"^\| `(\w+)` \| .* \| .*\|$", PAGE.split("## The losses")[1], flags=re.MULTILINE)) == set(
        LOSSES
    )


def test_help_shows_how_to_pick_a_rival(capsys):
    with pytest.raises(SystemExit):
        fit.main(["--help"])
    said = capsys.readouterr().out
    assert "--model dlcm" in said
    models = said.split("models:")[1]
    for name in ("qilcm", "qilcm2", "dlcm", "dcm", "mlp", "first_stage"):
        assert re.search(rf"\b{name}\b", models)


def test_the_figures_of_speed_are_those_that_were_measured():
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    confusion = json.loads((results / "confusion.json").read_text(encoding="utf-8"))
    epoch = json.loads((results / "epoch.json").read_text(encoding="utf-8"))
    ratios, models = confusion["ratio_to_step_without"], epoch["models"]
    speed = PAGE.split("## Speed")[1]
    assert f"{confusion['lists']} lists of {confusion['candidates']} candidates" in " ".join(speed.split())
    for shown, ratio in (
        ("exact, all pairs", f"{ratios['all_pairs']:.1f}"),
        ("a quarter of the pairs (`confusion_pairs = 790`)", f"{ratios['quarter_of_pairs']:.1f}"),
        ("as the paper prints it (`--naive`)", f"{ratios['naive']:.0f}"),
    ):
        assert f"| {shown} | {ratio} |" in speed
    assert f"{confusion['peak_memory_gib']:.1f} GiB" in speed
    assert ratios["all_pairs"] <= 3.5
    assert ratios["quarter_of_pairs"] <= 1.5
    assert confusion["peak_memory_gib"] < 2.0
    padded = epoch["padded_over_real_candidates"]
    for shown, value in (
        ("share of an epoch of QILCM", f"{100 * models['qilcm']['share']:.1f} %"),
        ("share of an epoch of the MLP", f"{100 * models['mlp']['share']:.1f} %"),
        ("rows per real candidate, lists of similar length in a batch", f"{padded['buckets']:.2f}"),
        ("rows per real candidate, any lists in a batch", f"{padded['without']:.2f}"),
    ):
        assert f"| {shown} | {value} |" in speed
    assert max(found["share"] for found in models.values()) < 0.1
