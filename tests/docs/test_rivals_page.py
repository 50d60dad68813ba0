"""What ``docs/rivals.md`` shows runs, and names every model and loss there is."""

import re
from importlib import import_module

import pytest
import torch

from listwright.training import losses
from listwright.training.commands import fit
from listwright.training.recipe import config
from listwright.training.recipe.model import MODEL_NAMES, model_like
from support.pages.figure_blocks import ROOT, blocks, page, result, table

LOSSES = {*losses.__all__} - {"log_likelihood"}  # which has a page of its own, and takes no padding
PAGE = page("docs/rivals.md")


def code(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("loss", [name for name in sorted(LOSSES) if name != "confusion_loss"])
def test_the_example_learns_with_every_loss(loss):
    (example,) = code("python")
    assert len(example.splitlines()) <= 13
    torch.manual_seed(0)
    first, last = {}, {}
    exec(example.replace("plackett_luce", loss).replace("range(10)", "range(1)"), first)
    torch.manual_seed(0)
    exec(example.replace("plackett_luce", loss), last)
    assert last["loss"].item() < first["loss"].item()


def test_the_table_names_every_model_and_what_it_is_called_in_a_recipe():
    rows = re.findall(
        r"^\| `([\w-]+)` \| `(kind|variant|query_norm) = \"(\w+)\"` \| .* \| `(\w+)` \|$", PAGE, flags=re.MULTILINE
    )
    assert [row[0] for row in rows] == list(MODEL_NAMES)
    like = config.load("demo").model
    for name, field, value, strategy in rows:
        model = model_like(name, like)
        assert getattr(model, field) == value
        assert model.kind == strategy


def test_the_recipe_on_the_page_is_one(tmp_path):
    recipe, rival = code("toml")
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\nabout = "x"\n[data]\nkind = "synthetic"\n' + recipe)
    assert config.load(str(path)).model.kind == "dlcm"
    path.write_text('name = "own"\nabout = "x"\n[data]\nkind = "synthetic"\n' + rival)
    assert config.load(str(path)).model_named("dlcm").learning_rate == 0.0005


def test_the_losses_of_the_page_are_all_there_are():
    assert set(re.findall(r"^\| `(\w+)` \| .* \| .*\|$", PAGE.split("## The losses")[1], flags=re.MULTILINE)) == set(
        LOSSES
    )


PUBLIC = ("listwright.ranking", "listwright.training", "listwright.training.losses", "listwright_client")
DOTTED = re.compile(r"`(?:from )?((?:listwright|listwright_client|ranking|training|service|client)(?:\.\w+)+)[`( =]")
"""A dotted Python name in text, not a command: ``python -m`` stands before those."""
METADATA = {
    "listwright.forest",
    "listwright.linear",
    "listwright.ranker",
    *(f"listwright.{n}" for n in ("categories", "features", "schema_version")),
}
"""Names within ONNX graphs, and within files of the served log."""
VALUES = {f"service.{name}" for name in ("annotations", "ipFamilies", "ipFamilyPolicy", "port", "type")}
"""Values of the Helm chart."""


@pytest.mark.parametrize("path", sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")]), ids=lambda path: path.name)
def test_pages_name_only_what_is_public(path):
    """As an installed package names it."""
    for name in DOTTED.findall(path.read_text(encoding="utf-8")):
        if name in PUBLIC or name in METADATA | VALUES or (ROOT / name).exists():
            continue
        package, _, member = name.rpartition(".")
        assert package in PUBLIC, f"{path.name}: {name}"
        assert member in import_module(package).__all__, f"{path.name}: {name}"


def test_help_shows_how_to_pick_a_rival(capsys):
    with pytest.raises(SystemExit):
        fit.main(["--help"])
    said = capsys.readouterr().out
    assert "--model dlcm" in said
    models = said.split("models:")[1]
    for name in ("qilcm", "qilcm2", "dlcm", "dcm", "mlp", "first_stage"):
        assert re.search(rf"\b{name}\b", models)


def steps():
    """What the confusion loss costs."""
    run = result("confusion")
    ratios = run["ratio_to_step_without"]
    assert run["threads"] == 2
    sizes = f"{run['lists']} lists of {run['candidates']} candidates, {run['inputs'] - 1} features"
    return table(
        [f"confusion loss, {sizes}", "time over a step without it"],
        [
            ["exact, all pairs", f"{ratios['all_pairs']:.1f}"],
            ["a quarter of the pairs (`confusion_pairs = 790`)", f"{ratios['quarter_of_pairs']:.1f}"],
            ["as the paper prints it (`--naive`)", f"{ratios['naive']:.0f}"],
            ["peak memory, libraries included, GiB", f"{run['peak_memory_gib']:.1f}"],
        ],
    )


def test_the_figures_of_speed_are_those_that_were_measured():
    assert blocks(PAGE) == [steps()]
