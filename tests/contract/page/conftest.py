"""The page in a real browser, over services of several kinds."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from support.http.processes import Process
from support.pages.browsing import chromium
from support.pages.explained import explained
from support.pages.page_actions import ranked, select
from support.service.bundles import make_bundle
from support.waiting import NEVER_S, PATIENCE_S

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo" / "1"


@pytest.fixture(scope="module")
def browser():
    """Chromium; skipped where it is not installed."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def demo():
    """A service of the demo with its page."""
    service = Process(bundle=DEMO, ui="true", queue_ms=1000 * NEVER_S, keep_alive_s=NEVER_S).wait_until_ready()
    yield service
    service.stop()


@pytest.fixture(scope="session")
def explaining():
    """A service of the demo with its page, which explains."""
    service = Process(bundle=DEMO, ui="true", explain="true", explain_timeout_ms=1000 * NEVER_S, keep_alive_s=NEVER_S)
    yield service.wait_until_ready()
    service.stop()


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory):
    """A service with its page, of a bundle with probabilities of relevance and goals; it explains."""
    yield from _serve(tmp_path_factory, probability="relevance", goals={"margin": 0.3, "eco": 0.0})


@pytest.fixture(scope="session")
def uncalibrated(tmp_path_factory):
    """A service with its page, of a bundle without probabilities and goals."""
    yield from _serve(tmp_path_factory)


def _serve(tmp_path_factory, **stages):
    path = tmp_path_factory.mktemp("models") / "shop" / "1"
    make_bundle(path, **stages)
    service = Process(bundle=path, ui="true", explain="true", queue_ms=1000 * NEVER_S, keep_alive_s=NEVER_S)
    yield service.wait_until_ready()
    service.stop()


@pytest.fixture
def open_page(browser):
    """Opens the page of a service; whatever a script or the policy complains of fails the test."""
    complaints = []
    with ExitStack() as closing:

        def start(service, fragment="", *, width=1280, height=900, scheme="light"):
            size = {"width": width, "height": height}
            context = closing.enter_context(browser.new_context(viewport=size, color_scheme=scheme))
            page = context.new_page()
            page.set_default_timeout(1000 * PATIENCE_S)
            page.on("console", lambda said: complaints.append(said.text) if _is_complaint(said) else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.goto(f"{service.url}/ui/{fragment}")
            return page

        yield start
    assert complaints == []


@pytest.fixture
def why(demo, open_page):
    """Opens the tab over a service that explains so; what it was asked is kept."""

    def start(answer=None, *, status=200, headers=None):
        page = open_page(demo)
        asked = []

        def fulfil(route):
            asked.append(route.request.post_data_json)
            route.fulfill(status=status, json=answer or explained(), headers=headers or {})

        page.route("**/explain", fulfil)
        ranked(page)
        select(page, "offer-3")
        page.get_by_role("button", name="Why this place?").click()
        return page, asked

    return start


def _is_complaint(said):
    """A refused request is none: the page shows it."""
    return said.type in ("error", "warning") and not said.text.startswith("Failed to load resource")
