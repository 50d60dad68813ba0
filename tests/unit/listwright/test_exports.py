"""What each package offers: a name that goes, or comes, is a decision."""

import importlib
import subprocess
import sys

import pytest

OFFERED = {
    "listwright.ranking": {
        "Bundle", "BundleError", "CandidateError", "CandidateList", "Choice", "DataError", "EvalProtocol", "Feature",
        "FeatureSchema", "ListwrightError", "Manifest", "Query", "Ranking", "RecipeError", "Reranker", "Route",
        "RoutingError", "SchemaMismatchError", "ScoringError", "UnknownStrategyError", "hit", "load", "ndcg",
        "precision", "reciprocal_rank",
    },
    "listwright.training": {"Qilcm"},
    "listwright.training.losses": {
        "att_rank", "confusion_loss", "log_likelihood", "plackett_luce", "softmax_cross_entropy",
    },
}  # fmt: skip


@pytest.mark.parametrize("package", OFFERED)
def test_what_is_offered(package):
    module = importlib.import_module(package)
    assert set(module.__all__) == OFFERED[package]
    for name in module.__all__:
        offered = getattr(module, name)
        assert offered.__module__.startswith(package)
        assert offered.__doc__, name


@pytest.mark.parametrize("package", ["listwright.ranking", "listwright.training"])
def test_another_name_is_none(package):
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        importlib.import_module(package).Nothing  # noqa: B018


def test_an_import_of_a_package_loads_no_library():
    probe = (
        "import sys, listwright.ranking, listwright.training; print(*{'numpy', 'torch', 'lightgbm'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("name", "missing"), [("listwright.training.Qilcm", "sklearn"), ("listwright.training.losses.att_rank", "torch")]
)
def test_a_name_whose_libraries_are_missing_says_what_to_install(name, missing):
    package, _, leaf = name.rpartition(".")
    probe = f"import sys; sys.modules[{missing!r}] = None; from {package} import {leaf}"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert f"{name} needs {missing}: pip install 'listwright[training]'" in done.stderr
