"""Services that explain."""

import pytest

from listwright.ranking import bundle
from support.service.asgi import serving
from support.service.bundles import make_bundle


@pytest.fixture(scope="session")
def explained_folder(tmp_path_factory):
    """All that can be explained: two stages, list-relative columns, specialists, a router, an anomaly score."""
    root = tmp_path_factory.mktemp("explained")
    return make_bundle(root / "shop" / "7", cutoff=5, graph="nan", specialists=3, margin=0.0, relative=True)


@pytest.fixture(scope="session")
def explained_reranker(explained_folder):
    return bundle.load(explained_folder).reranker


@pytest.fixture(scope="module")
def client(explained_folder):
    with serving(explained_folder, explain=True, timeout_ms=600_000, explain_timeout_ms=600_000) as client:
        yield client
