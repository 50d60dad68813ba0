"""A folder of bundles, for tests that change what is served."""

import shutil

import pytest

from listwright.service.bundles import folder
from support.service.bundles import make_bundle


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Bundles to copy from."""
    root = tmp_path_factory.mktemp("library")
    for seed in (1, 2, 3):
        make_bundle(root / "shop" / str(seed), seed=seed)
    make_bundle(root / "other" / "1", seed=4)
    make_bundle(root / "shop" / "broken", seed=5, graph="broken")
    return root


@pytest.fixture
def models(library, tmp_path):
    """A folder that serves shop/1 and holds shop/2 and shop/3."""
    for version in "123":
        shutil.copytree(library / "shop" / version, tmp_path / "shop" / version)
    folder.point(tmp_path, "shop", "1")
    return tmp_path
