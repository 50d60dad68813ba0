"""How the page looks and reads: no fault that axe-core finds, and nothing over the edge, from telephone to wide screen."""

import re
from pathlib import Path

import httpx
import pytest

from support.pages.explained import explained
from support.pages.page_actions import lies_over_the_edge, ranked, show, slide
from support.waiting import until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "build" / "axe" / "axe.min.js"
TABS = ("Try", "Why", "Models", "Live")
WIDTHS = (360, 768, 1600)


@pytest.fixture(scope="module")
def axe():
    """axe-core's source."""
    if not AXE.is_file():
        pytest.skip("no axe-core: python tools/page_libraries.py --axe fetches it with npm")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture
def shown(demo, open_page):
    """The page at one of its tabs, with all that it can show there."""

    def start(tab, **window):
        httpx.post(demo.url + "/rerank", json={"features": [[0.0] * 10 + ["v1"]] * 3, "feature_names": NAMES})
        page = open_page(demo, **window)
        page.route("**/explain", lambda route: route.fulfill(json=explained()))
        ranked(page)
        show(page, tab)
        ready = {
            "Try": "text=Time in the service",
            "Why": "text=Why this ranker",
            "Models": "text=Held-out result",
            "Live": "text=Time by stage",
        }
        page.locator(ready[tab]).first.wait_for()
        return page

    return start


NAMES = [*(f"n{number}" for number in range(1, 11)), "c1"]


def faults(page, axe):
    """What axe-core finds, in few words."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("tab", TABS)
def test_axe_finds_no_fault(shown, axe, tab, width, scheme):
    assert faults(shown(tab, width=width, scheme=scheme), axe) == []


def test_axe_finds_no_fault_in_dialogs_and_failures(shown, axe, demo, open_page):
    page = shown("Models", scheme="dark")
    page.get_by_role("button", name="Reload").click()
    page.get_by_role("dialog").wait_for()
    assert faults(page, axe) == []
    page = open_page(demo)
    page.route("**/rerank", lambda route: route.abort())
    page.reload()
    page.get_by_role("alert").wait_for()
    assert faults(page, axe) == []
    page.route("**/info*", lambda route: route.fulfill(status=401, json={"title": "Unauthorized", "status": 401}))
    page.reload()
    page.get_by_label("Key").wait_for()
    assert faults(page, axe) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tab", TABS)
def test_nothing_lies_over_the_edge(shown, tab, width):
    page = shown(tab, width=width)
    assert lies_over_the_edge(page) <= 0
    outside = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, h2, h3, p")]
            .filter(one => one.getClientRects().length && !one.closest(".scroll"))
            .filter(one => { const box = one.getBoundingClientRect(); return box.left < -1 || box.right > innerWidth + 1; })
            .map(one => one.outerHTML.slice(0, 80))"""
    )
    assert outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_probabilities_and_goals_have_no_fault_and_lie_within_the_edge(calibrated, open_page, axe, width, scheme):
    page = open_page(calibrated, width=width, scheme=scheme)
    page.get_by_label("Golden list of the bundle").select_option("5")
    slide(page, "margin", 0.9)
    slide(page, "Leave out below", 40)
    page.get_by_text(re.compile("of 12 left out")).wait_for()
    assert faults(page, axe) == []
    assert lies_over_the_edge(page) <= 0
    slide(page, "Leave out below", 100)
    page.get_by_text("Every candidate is left out.").wait_for()
    assert faults(page, axe) == []


def test_tabs_are_walked_by_arrow_keys_and_reached_by_address(demo, open_page):
    page = open_page(demo, "#tab=models")
    page.get_by_role("tab", name="Models").focus()
    for key, name in [
        ("ArrowRight", "Live"),
        ("ArrowRight", "Try"),
        ("End", "Live"),
        ("Home", "Try"),
        ("ArrowLeft", "Live"),
    ]:
        page.keyboard.press(key)
        until(lambda name=name: page.evaluate("document.activeElement.textContent.trim()") == name)
        assert page.get_by_role("tab", name=name).get_attribute("aria-selected") == "true"
        assert f"#tab={name.lower()}" in page.url


def test_all_that_can_be_used_is_reached_by_tab(shown):
    """Every button and field takes part in the order of the Tab key, but for tabs that are not chosen."""
    page = shown("Try")
    skipped = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, textarea, a[href], summary")]
            .filter(one => one.getClientRects().length && !one.disabled && one.tabIndex < 0 && one.role !== "tab")
            .map(one => one.outerHTML.slice(0, 80))"""
    )
    assert skipped == []


def test_a_telephone_shows_contributions_whole(shown):
    page = shown("Why", width=360)
    wide = "regions => regions.map(region => region.scrollWidth - region.clientWidth)"
    regions = page.locator(".explained .scroll")
    assert regions.evaluate_all(wide) == [0] * regions.count() != []
