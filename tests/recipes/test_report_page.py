"""The pages as pictures: a real headless browser draws them, on a desk and on a telephone, light and dark."""

import contextlib
import io
import json

import numpy as np
import pytest
from matplotlib.image import imread

from listwright.ranking import bundle
from listwright.training.commands import fit
from listwright.training.commands import page as page_command
from listwright.training.reporting.page import PageSection, PageTable, render
from listwright_lab.suites import oracle, routing
from listwright_lab.suites.listwise import methods
from listwright_lab.suites.listwise import pages as listwise_pages
from support.pages.browsing import chromium
from support.training.measured import measured, planted_gains, results, routed
from support.training.tiny import SPECIALISED
from support.waiting import until

pytestmark = pytest.mark.nightly

WIDTHS = {"desk": 1100, "telephone": 390, "small telephone": 360}
TELEPHONES = (360, 390)

PAGES = ["fit", "specialised", "oracle", "routing", "table2", "table3", "anomaly", "lambda", "names"]

NAMES = ("a_feature_" * 12, "two words " * 8, "short")
LONG_NAMES = [PageTable("", ["feature", *"abcdefgh"], [[name, *["0.1234\n0.123\u20130.124"] * 8] for name in NAMES])]


@pytest.fixture(scope="module")
def browser():
    """Chromium; the tests that look are skipped where it is not installed."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def specialised(tmp_path_factory):
    """A bundle with specialists, a router and an anomaly score."""
    folder = tmp_path_factory.mktemp("specialised")
    (folder / "specialised.toml").write_text(SPECIALISED)
    assert fit.main([str(folder / "specialised.toml"), "--out", str(folder / "specialised" / "1")]) == 0
    return folder / "specialised" / "1"


def pixels(png):
    """``(height, width, 3)`` from 0 to 1."""
    return imread(io.BytesIO(png))[..., :3]


@contextlib.contextmanager
def looking(browser, path, width, scheme):
    """The page in a window, and what the browser wrote to its console or tried to fetch."""
    with browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme) as context:
        page, complaints = context.new_page(), []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        yield page, complaints


@pytest.fixture(scope="module")
def pages(fitted, specialised, tmp_path_factory):
    """Every kind of page that is written."""
    folder = tmp_path_factory.mktemp("pages")
    more = {"ndcg_at": 10, "command": "listwright experiment x", "facts": ["Data: x."], "settings": "{}"}
    noise = 0.01 * np.random.default_rng(0).normal(size=60)
    summary = oracle.summarise(results(0.9 + noise, 0.3 + noise, 0.6 + noise, 0.7 + noise))
    (folder / "oracle.html").write_text(oracle.page("x", summary, **more))
    (folder / "routing.html").write_text(routing.page("x", routed(), **more))
    variants = ("lambdamart", "qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3")
    planted = {s: measured(planted_gains(gain=s, methods=variants), shift=s) for s in (0.0, 0.1)}
    weights = ("lambdamart", *(methods.weight_name(weight) for weight in methods.WEIGHTS))
    strange = measured(planted_gains(), anomaly=np.linspace(0.4, 0.6, 200))
    told = {
        "table2": listwise_pages.table2(measured(planted_gains(gain=0.02)), 10),
        "table3": listwise_pages.table3(planted, 10),
        "anomaly": listwise_pages.anomaly(strange, 10),
        "lambda": listwise_pages.confusion_weights(measured(planted_gains(methods=weights)), 10),
    }
    repeat = {name: more[name] for name in ("command", "facts", "settings")}
    for name, one in told.items():
        (folder / f"{name}.html").write_text(render(name, one.verdicts, one.sections, **repeat))
    (folder / "names.html").write_text(render("names", ["Long ones."], [PageSection("", tables=LONG_NAMES)], **repeat))
    return {
        **{name: folder / f"{name}.html" for name in (*told, "names")},
        "fit": fitted / "report.html",
        "specialised": specialised / "report.html",
        "oracle": folder / "oracle.html",
        "routing": folder / "routing.html",
    }


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", PAGES[:-1])
def test_page_is_drawn_whole(browser, pages, name, width):
    pictures = {}
    for scheme in ("light", "dark"):
        with looking(browser, pages[name], width, scheme) as (page, complaints):
            assert complaints == [], "nothing is fetched, nothing is complained of"
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing hangs over the edge"
            sizes = page.evaluate(
                "[...document.querySelectorAll('figure svg')].map(e => [e.getBoundingClientRect().width, "
                "e.getBoundingClientRect().height])"
            )
            assert sizes
            assert all(300 < wide <= width and tall > 80 for wide, tall in sizes)
            pictures[scheme] = pixels(page.screenshot(full_page=True))
    light, dark = pictures["light"], pictures["dark"]
    assert light.shape == dark.shape, "the same page, in other colours"
    assert light[2, 2].min() > 0.95, "white paper"
    assert dark[2, 2].max() < 0.15, "dark paper"
    for picture in pictures.values():
        assert (np.abs(picture - picture[2, 2]).max(axis=2) > 0.4).mean() > 0.01, "and something on it"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_shows_something_in_both_schemes(browser, pages, scheme):
    """A figure that is drawn in the colour of the paper has a size too."""
    with looking(browser, pages["specialised"], 1100, scheme) as (page, _):
        figures = page.query_selector_all("figure svg")
        labels = [figure.get_attribute("aria-label") for figure in figures]
        assert len(labels) == len(set(labels)) == 10
        for figure, label in zip(figures, labels, strict=True):
            drawn = pixels(figure.screenshot())
            paper = drawn[0, 0]
            assert (np.abs(drawn - paper).max(axis=2) > 0.3).mean() > 0.005, label


CELLS = """[...document.querySelectorAll('.scroll')].map(box => {
  const seen = box.getBoundingClientRect(), first = box.querySelector('th').getBoundingClientRect().width;
  const held = getComputedStyle(box.querySelector('td')).position === 'sticky' ? first : 0;
  return [...box.querySelectorAll('th, td')].map(cell => {
    box.scrollLeft = cell.offsetLeft - (cell.cellIndex ? held : 0);
    const place = cell.getBoundingClientRect();
    const left = place.left - seen.left - (cell.cellIndex ? held : 0);
    return [left, seen.right - place.right, cell.scrollWidth - cell.clientWidth];
  });
})"""
"""Of every cell, scrolled to: what is left of it to either side, and what its own box hides."""


@pytest.mark.parametrize("width", TELEPHONES)
@pytest.mark.parametrize("name", PAGES)
def test_every_cell_of_every_table_can_be_read_on_a_telephone(browser, pages, name, width):
    """In the box of its table, which alone moves sideways."""
    with looking(browser, pages[name], width, "light") as (page, _):
        tables = page.evaluate(CELLS)
        assert tables
        for cells in tables:
            assert min(left for left, _, _ in cells) >= -1.0, "not behind the names of the rows"
            assert min(right for _, right, _ in cells) >= -1.0, "nor over the edge"
            assert max(hidden for _, _, hidden in cells) <= 1.0
        page.evaluate("window.scrollTo(1000, 0)")
        assert page.evaluate("[window.scrollX, document.documentElement.scrollWidth]") == [0, width]


HIDES = """box => [...box.querySelectorAll('th, td')].some(cell => {
  const letters = document.createRange();
  letters.selectNodeContents(cell);
  return letters.getBoundingClientRect().right > box.getBoundingClientRect().right;
})"""


def shade(box, paper):
    """How much the columns of pixels at both edges of a table's box differ from the paper, in the gaps between letters."""
    drawn = pixels(box.screenshot())
    return [float(np.median(np.abs(drawn[:, column] - paper).max(axis=1))) for column in (1, -2)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [*TELEPHONES, 1100])
@pytest.mark.parametrize("name", ["specialised", "table2"])
def test_an_edge_that_hides_a_part_of_a_table_is_shaded(browser, pages, name, width, scheme):
    with looking(browser, pages[name], width, scheme) as (page, _):
        paper = pixels(page.screenshot())[2, 2]
        boxes = page.query_selector_all(".scroll")
        hides = [box.evaluate(HIDES) for box in boxes]
        assert any(hides) == (width in TELEPHONES)
        for box, more in zip(boxes, hides, strict=True):
            assert (shade(box, paper)[1] > 0.15) == more, "the right edge, where the table begins"
            box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
            assert shade(box, paper)[1] < 0.03, "nothing is hidden at the end"


def test_a_table_on_a_desk_is_shaded_at_the_left_too(browser, pages, tmp_path):
    """There the names of the rows move along."""
    with looking(browser, pages["names"], 600, "light") as (page, _):
        paper = pixels(page.screenshot())[2, 2]
        box = page.query_selector(".scroll")
        at_the_beginning = shade(box, paper)
        box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
        at_the_end = shade(box, paper)
        assert max(at_the_beginning[0], at_the_end[1]) < 0.03
        assert min(at_the_beginning[1], at_the_end[0]) > 0.15


def test_a_table_has_a_name_and_takes_the_keyboard(browser, pages):
    with looking(browser, pages["specialised"], 360, "light") as (page, _):
        box = page.query_selector(".scroll")
        assert box.get_attribute("aria-label") == "Means over the test queries"
        box.focus()
        page.keyboard.press("ArrowRight")
        until(lambda: box.evaluate("box => box.scrollLeft"))


def test_letters_stay_readable_on_a_telephone(browser, pages):
    """The smallest letters of a figure, after it was shrunk to the window."""
    with looking(browser, pages["specialised"], 390, "light") as (page, _):
        heights = page.evaluate(
            "[...document.querySelectorAll('figure svg text')].map(e => parseFloat(getComputedStyle(e).fontSize) * "
            "e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width)"
        )
        assert min(heights) >= 8.5


def test_page_is_made_from_the_json_alone(specialised, tmp_path):
    again = tmp_path / "again.html"
    assert page_command.main([str(specialised / "report.json"), str(again)]) == 0
    assert again.read_bytes() == (specialised / "report.html").read_bytes()


def test_page_is_sealed_in_the_bundle(fitted):
    names = {file.name for file in bundle.load(fitted).manifest.files}
    assert {"report.html", "report.json"} <= names
    assert (fitted / "report.json").stat().st_size < 100_000


def test_page_says_what_it_is_about(fitted, specialised):
    plain, special = ((folder / "report.html").read_text() for folder in (fitted, specialised))
    report = json.loads((specialised / "report.json").read_text())
    assert "No anomaly score" not in plain + special
    assert json.loads((fitted / "report.json").read_text())["details"]["anomaly"]["bins"]
    assert len(report["details"]["anomaly"]["bins"]) == 4
    assert report["routing"]["sentence"].split(":")[0] in special
    assert report["repeat"]["command"] == "listwright fit specialised.toml"
    assert report["repeat"]["command"] in special
    assert report["repeat"]["data_fingerprint"] in special
    for version in report["repeat"]["made_with"].values():
        assert version in special
    assert str(specialised.parent.parent) not in special, "a page names no folder of this machine"


def test_another_run_says_the_same_but_for_what_was_measured_here(fitted, recipe, tmp_path):
    again = tmp_path / "tiny" / "1"
    assert fit.main([str(recipe), "--out", str(again)]) == 0
    first, second = (json.loads((folder / "report.json").read_text()) for folder in (fitted, again))
    here = [report.pop("measured_here") for report in (first, second)]
    assert first == second
    assert set(here[0]) == {"created_at", "machine", "latency", "seconds"}
