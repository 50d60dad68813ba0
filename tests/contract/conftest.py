"""A live service over a small bundle, an application without a port, and services of a folder of bundles."""

import os
import shutil

import httpx
import pytest

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.bundles import folder
from listwright.service.commands import serve as command_line
from listwright.service.settings import PREFIX, Settings
from listwright_client import Client
from support.http.client_calls import in_process
from support.http.processes import SERVING_ONLY, Process, free_port
from support.http.worker_processes import family
from support.service.bundles import make_bundle
from support.waiting import NEVER_S, PATIENCE_S

__all__ = ["Process", "free_port"]  # tests/docs takes them from here


@pytest.fixture(scope="module", autouse=True)
def hide_training_libraries():
    """Hide from the processes of a service what the image does not have: they start sooner without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SERVING_ONLY)
        yield


@pytest.fixture(scope="session")
def bundle_folder(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=5, graph="nan", specialists=3)


@pytest.fixture(scope="session")
def reranker(bundle_folder):
    return bundle.load(bundle_folder).reranker


@pytest.fixture(scope="session")
def live(bundle_folder):
    service = Process(
        bundle=bundle_folder,
        max_candidates=50,
        max_payload_bytes=200_000,
        queue_ms=1000 * NEVER_S,
        keep_alive_s=NEVER_S,
    ).wait_until_ready()
    try:
        with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as client:
            yield client
    finally:
        service.stop()


@pytest.fixture(scope="session")
def client(live):
    """Our own client of the live service."""
    return Client(str(live.base_url), http=live)


@pytest.fixture(scope="session")
def app(bundle_folder):
    settings = Settings(bundle=bundle_folder, max_candidates=50, max_payload_bytes=200_000)
    return create_app(settings, models=bundle.load(bundle_folder))


@pytest.fixture(params=["live", "in process"])
def rerank(request, client, app):
    """Reranks by either client: over a port, and straight."""
    if request.param == "live":
        return client.rerank
    return lambda *values, **words: in_process(app, lambda client: client.rerank(*values, **words))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Bundles to copy from."""
    root = tmp_path_factory.mktemp("library")
    for seed in (1, 2):
        make_bundle(root / "shop" / str(seed), seed=seed)
    return root


@pytest.fixture
def models(library, tmp_path):
    """A folder that serves shop/1 and holds shop/2."""
    shutil.copytree(library / "shop", tmp_path / "shop")
    folder.point(tmp_path, "shop", "1")
    return tmp_path


@pytest.fixture
def try_to_start(monkeypatch, capsys):
    """Give ``listwright serve`` settings that end it before it serves, in this process; its exit code and message."""

    def start(*words, **settings):
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            monkeypatch.delenv(name)
        for step in ("create_app", "supervise"):
            monkeypatch.setattr(command_line, step, lambda *_, **__: pytest.fail("it starts"))
        for name, value in settings.items():
            monkeypatch.setenv(f"{PREFIX}{name.upper()}", str(value))
        return command_line.main(list(words)), capsys.readouterr().err

    return start


@pytest.fixture
def serve():
    """Starts services, and sees to it that none survives the test."""
    started = []

    def start(**settings):
        started.append(Process(**settings))
        return started[-1].wait_until_ready()

    yield start
    for service in started:
        for process in family(service):
            process.kill()
        service.process.wait()
        service.output.close()
