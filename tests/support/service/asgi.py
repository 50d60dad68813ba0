"""Asks an application without a port, from tests that are not asynchronous."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.settings import Settings


class Client:
    """httpx over ASGI; exceptions of the application become its answer, as behind a real server."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self.portal = portal
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.asynchronous = httpx.AsyncClient(transport=transport, base_url="http://service")

    def get(self, path: str, **request) -> httpx.Response:
        return self.portal.call(partial(self.asynchronous.get, path, **request))

    def post(self, path: str, **request) -> httpx.Response:
        return self.portal.call(partial(self.asynchronous.post, path, **request))


@contextmanager
def asking(app: FastAPI, *, started: bool = True) -> Iterator[Client]:
    """A client of ``app``; with ``started=False`` the application's start-up has not run yet."""
    with start_blocking_portal() as portal, ExitStack() as stack:
        if started:
            stack.enter_context(portal.wrap_async_context_manager(app.router.lifespan_context(app)))
        yield Client(app, portal)


@contextmanager
def serving(folder, **settings):
    """A client of the application over one bundle; it knows the application as ``app``."""
    app = create_app(Settings(bundle=folder, **settings), models=bundle.load(folder))
    with asking(app) as client:
        client.app = app
        yield client
