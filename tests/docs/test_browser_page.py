"""The page of the site on which the demo ranks in the reader's browser."""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from listwright.ranking.bundle import load
from listwright.ranking.candidates import CandidateList
from listwright.service.ui.routes import describe_bundle
from support.pages.browsing import chromium
from support.pages.page_actions import hold
from support.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "build" / "axe" / "axe.min.js"
WASM = "**/*.wasm"
STRATEGIES = ("first_stage", "qilcm")

sys.path.append(str(ROOT / "tools" / "site"))
from ranker_page import DEMO, PAGE, fill_page, ranker_files  # noqa: E402


@pytest.fixture(scope="module")
def address(site):
    """The site at a static server."""
    if not (site / "ranker").is_dir():
        pytest.skip("no onnxruntime-web: python tools/page_libraries.py --onnxruntime fetches it with npm")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def open_page(browser, address):
    """Opens the page; what a script complains of, or what is asked of another host, fails the test."""
    complaints = []

    def start(*, width=1280, scheme="light", route=None):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith(address) else complaints.append(sent.url))
        if route is not None:
            page.route(WASM, route)
        page.goto(f"{address}/browser.html")
        return page, page.frame_locator("#ranker")

    yield start
    assert complaints == []


@pytest.fixture(scope="module")
def demo():
    return load(DEMO)


@pytest.fixture(scope="module")
def golden(demo):
    """Rows of each list on the page, categories by name."""
    return [shown.rows for shown in describe_bundle(demo).golden]


def order_of(demo, rows, strategy):
    """Names of the candidates, best first, by the bundle."""
    features = np.empty((len(rows), len(rows[0])))
    for column, feature in enumerate(demo.manifest.feature_schema.features):
        for row, values in enumerate(rows):
            value = values[column]
            if feature.kind == "categorical":
                features[row, column] = 0 if value is None else 1 + feature.categories.index(value)
            else:
                features[row, column] = np.nan if value is None else value
    ranking = demo.reranker.rerank(CandidateList(features), strategy=strategy, routing=False)
    return [f"offer-{index + 1}" for index in ranking.order.tolist()]


def wait_for_order(frame, expected):
    until(lambda: frame.locator("[role=option] .name").all_inner_texts() == expected)


def change(frame, rows, row, feature, column, value):
    """Select a candidate and change a number of it; returns the rows with it."""
    frame.locator(f"#place-{row}").click()
    frame.get_by_role("spinbutton", name=f"{feature}, number").fill(str(value))
    changed = [list(values) for values in rows]
    changed[row][column] = value
    return changed


def test_without_onnxruntime_the_page_has_a_note_instead(tmp_path):
    assert ranker_files(tmp_path / "absent") == {}
    text = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    assert fill_page(text, has_ranker=True) == text
    noted = fill_page(text, has_ranker=False)
    assert "<iframe" not in noted
    assert "<script" not in noted
    assert "make docs" in noted
    assert "## How it is made" in noted


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1280, 390])
def test_lists_are_ranked_as_by_the_bundle(open_page, demo, golden, width):
    page, frame = open_page(width=width)
    frame.get_by_text("Ranked in this browser").wait_for()
    for strategy in STRATEGIES:
        frame.get_by_label("Strategy").select_option(strategy)
        for number, rows in enumerate(golden):
            frame.get_by_label("Golden list of the bundle").select_option(str(number))
            wait_for_order(frame, order_of(demo, rows, strategy))
        last = order_of(demo, rows, strategy)[-1]
        row = int(last.removeprefix("offer-")) - 1
        rows = change(frame, rows, row, "n1", 0, 7.5)
        rows = change(frame, rows, row, "n2", 1, -5.5)
        column = demo.manifest.feature_schema.index["c1"]
        rows[row][column] = demo.manifest.feature_schema.features[column].categories[0]
        frame.get_by_label("c1", exact=True).select_option("known-0")
        rows[row][2] = None
        frame.get_by_label("n3 is missing").check()
        edited = order_of(demo, rows, strategy)
        assert edited != order_of(demo, golden[-1], strategy)
        wait_for_order(frame, edited)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert frame.locator("html").evaluate("page => page.scrollWidth - page.clientWidth") == 0
        assert frame.locator("html").evaluate("page => page.scrollHeight - page.clientHeight") == 0


@pytest.mark.nightly
def test_the_list_is_shown_before_onnxruntime_is_there(open_page, demo, golden):
    held = []
    _, frame = open_page(route=partial(hold, held=held))
    wait_for_order(frame, order_of(demo, golden[0], "first_stage"))
    frame.get_by_label("Golden list of the bundle").select_option("6")
    frame.get_by_label("Strategy").select_option("qilcm")
    wait_for_order(frame, order_of(demo, golden[6], "qilcm"))
    first, *others = golden[6]
    orders = {value: order_of(demo, [[value, *first[1:]], *others], "qilcm") for value in range(-50, 51, 5)}
    value = next(value for value, order in orders.items() if order != order_of(demo, golden[6], "qilcm"))
    rows = change(frame, golden[6], 0, "n1", 0, value)
    expected = order_of(demo, rows, "qilcm")
    assert expected == orders[value]
    frame.get_by_text("Loading ONNX Runtime").wait_for()
    until(lambda: held)
    for route in held:
        route.continue_()
    wait_for_order(frame, expected)


@pytest.mark.nightly
def test_a_failed_download_is_tried_again(open_page, demo, golden):
    page, frame = open_page(route=lambda route: route.abort())
    frame.get_by_text("ONNX Runtime was not loaded").first.wait_for()
    frame.get_by_label("Golden list of the bundle").select_option("1")
    wait_for_order(frame, order_of(demo, golden[1], "first_stage"))
    rows = change(frame, golden[1], 0, "n1", 0, 7.5)
    frame.get_by_role("alert").wait_for()
    page.unroute(WASM)
    frame.get_by_role("button", name="Ask again").click()
    frame.get_by_role("alert").wait_for(state="detached")
    wait_for_order(frame, order_of(demo, rows, "first_stage"))
    frame.get_by_text("Ranked in this browser").wait_for()


@pytest.mark.nightly
def test_the_frame_has_the_colours_of_the_site(open_page):
    page, frame = open_page(scheme="dark")
    ink = "page => getComputedStyle(page).color"
    frame.locator("[role=option]").first.wait_for()
    dark = frame.locator("body").evaluate(ink)
    page.locator("label[title='Switch to light']:visible").click()
    until(lambda: frame.locator("body").evaluate(ink) != dark)


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_the_frame(open_page, width, scheme):
    if not AXE.is_file():
        pytest.skip("no axe-core: python tools/page_libraries.py --axe fetches it with npm")
    page, frame = open_page(width=width, scheme=scheme)
    frame.get_by_text("Ranked in this browser").wait_for()
    inside = page.frames[1]
    inside.evaluate(AXE.read_text(encoding="utf-8"))
    rules = {"page-has-heading-one": {"enabled": False}}  # the page around the frame has it
    options = {"resultTypes": ["violations"], "rules": rules}
    found = inside.evaluate("options => axe.run(document, options)", options)["violations"]
    assert [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]] == []


@pytest.mark.nightly
def test_from_the_disk_the_page_says_what_to_do(site, browser):
    page = browser.new_page()
    page.goto((site / "browser.html").as_uri())
    page.get_by_text("python -m http.server").wait_for()
    assert page.locator("iframe#ranker").count() == 0
