"""Both clients before a scripted service."""

import httpx
import pytest

from listwright_client import AsyncClient, Client
from support.http.scripted import URL, Awaited, Server


@pytest.fixture
def server():
    return Server()


@pytest.fixture(params=["sync", "async"])
def make(request, server):
    """Makes a client of either kind, with a jitter that takes half of each pause."""

    def build(**options):
        transport = httpx.MockTransport(server)
        shared = {"clock": lambda: server.now, "jitter": lambda: 0.5, **options}
        if request.param == "sync":
            return Client(URL, http=httpx.Client(transport=transport), sleep=server.wait, **shared)
        http = httpx.AsyncClient(transport=transport)
        return Awaited(AsyncClient(URL, http=http, sleep=server.wait_async, **shared))

    return build


@pytest.fixture
def client(make):
    return make()
