"""A service of two bundles with one schema, and a third whose second stage fails on some lists."""

import shutil
from contextlib import contextmanager

import pytest

from listwright.service import watched_file
from listwright.service.app import create_app
from listwright.service.bundles import folder
from listwright.service.settings import Settings
from support.experiments import written
from support.service.asgi import asking
from support.service.bundles import make_bundle


@pytest.fixture(scope="session")
def rivals(tmp_path_factory):
    """Bundles to serve."""
    root = tmp_path_factory.mktemp("rivals")
    make_bundle(root / "shop" / "1", seed=1)
    make_bundle(root / "next" / "1", seed=2)
    make_bundle(root / "frail" / "1", seed=3, graph="nan")
    make_bundle(root / "narrow" / "1", seed=4, categorical=False)
    for name in ("shop", "next", "frail", "narrow"):
        folder.point(root, name, "1")
    (root / "default").mkdir()
    (root / "default" / "ALIAS").write_text("shop\n")
    return root


@pytest.fixture
def served(rivals, tmp_path):
    """A copy of them that a test may change."""
    return shutil.copytree(rivals, tmp_path / "models")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "experiments.toml"


@pytest.fixture
def running(rivals, file, tmp_path, monkeypatch):
    """A service with experiments and a served log in ``tmp_path/log``."""
    monkeypatch.setattr(watched_file, "LOOK_S", 0.02)
    (tmp_path / "log").mkdir()

    @contextmanager
    def start(*experiments, models=rivals, **settings):
        if experiments:
            written(file, *experiments)
        app = create_app(
            Settings(models=models, experiments=file, served_log=tmp_path / "log", poll_s=0.05, **settings)
        )
        with asking(app) as client:
            client.app = app
            yield client

    return start
