"""The paths of the page. They are no part of the contract of ``openapi.yaml``: their one caller is the page itself."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse

from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.errors import BundleError
from listwright.service import paths
from listwright.service.api.service import CheckedRoute, Served, service_of
from listwright.service.errors import NotReadyError
from listwright.service.ui import files
from listwright.service.ui.about import REPORT_PAGE, About, lists_file
from listwright.service.wire.schemas import Name

REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A report is one file with styles and drawings of its own. It runs no script, and is of no origin."""

Model = Annotated[Name | None, Query()]


def routes() -> tuple[APIRouter, frozenset[str]]:
    """What answers below ``/ui``, and the paths of it that need no key: they hold nothing but the page's own code."""
    router = APIRouter(include_in_schema=False, route_class=CheckedRoute)
    static, about = files.read(), About()

    @router.get(paths.UI)
    async def page() -> Response:
        """The page has its files beside it, so its own path ends with a slash."""
        return RedirectResponse("ui/", 307)

    @router.get(paths.UI_BUNDLE)
    async def shown(request: Request, served: Served, model: Model = None, version: Model = None) -> Response:
        """What a bundle has for the page: golden lists, quantiles of training, the held-out table."""
        chosen = _chosen(request, served.default or next(iter(served.current)), model, version)
        return Response(await to_thread.run_sync(about.of, chosen), media_type="application/json")

    @router.get(paths.UI_REPORT)
    async def report(request: Request, served: Served, model: Model = None, version: Model = None) -> Response:
        """The report of the run that made a bundle."""
        chosen = _chosen(request, served.default or next(iter(served.current)), model, version)
        if not lists_file(chosen.manifest, REPORT_PAGE):
            raise HTTPException(404)
        content = await to_thread.run_sync(_read_report, chosen)
        return Response(content, media_type=files.TYPES[".html"], headers={"Content-Security-Policy": REPORT_POLICY})

    @router.get(paths.UI_FILES)
    async def file(request: Request, name: str) -> Response:
        """A file of the page."""
        return files.answer(static, name, request)

    return router, frozenset((paths.UI, paths.UI_PAGE, *(f"{paths.UI_PAGE}{name}" for name in static)))


def _chosen(request: Request, usual: str, model: str | None, version: str | None) -> Bundle:
    """The bundle that is named, or what ``/info`` describes where none is."""
    return service_of(request).addressed(request, usual if model is None else model, version)


def _read_report(served: Bundle) -> bytes:
    try:
        return bundle.read_listed(served.path, served.manifest, REPORT_PAGE)
    except BundleError as error:
        raise NotReadyError(f"{REPORT_PAGE}: {error.reason}") from error
