"""What goes wrong is shown as what it is, and what a caller sends stays text."""

import shutil

import pytest

from support.http.rerank_requests import by_name
from support.pages.page_actions import lies_over_the_edge, paste, ranked, select, show, text_of, type_value
from support.service.bundles import make_bundle
from support.waiting import NEVER_S, until

pytestmark = pytest.mark.nightly

KEY = "web-key-0123456789"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", graph="nan", specialists=2, cutoff=5)


def test_a_degraded_answer_is_shown_as_one_until_it_is_none(serve, shop, open_page):
    page = open_page(serve(bundle=shop, ui="true", queue_ms=1000 * NEVER_S))
    ranked(page)
    paste(page, by_name())
    until(lambda: set(ranked(page)) == {f"sku-{number}" for number in range(7)})
    assert page.get_by_role("alert").count() == 0
    select(page, "sku-0")
    page.get_by_label("price", exact=True).fill("5000")
    page.get_by_text("Degraded: the answer is of first stage.").wait_for()
    page.get_by_label("price", exact=True).fill("1")
    until(lambda: page.get_by_role("alert").count() == 0)


def test_candidates_below_the_cutoff_say_so(serve, shop, open_page):
    page = open_page(serve(bundle=shop, ui="true", queue_ms=1000 * NEVER_S))
    ranked(page)
    paste(page, by_name())
    until(lambda: len(ranked(page)) == 7)
    assert page.locator("[role=option]").all_inner_texts()[-1].count("below the cutoff") == 1


def test_too_many_requests_are_refused_visibly_and_the_last_order_stays(serve, shop, open_page):
    service = serve(bundle=shop, ui="true", keys=f"web:{KEY}", key_rate=0.01, key_burst=4, queue_ms=1000 * NEVER_S)
    page = open_page(service)
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Open").click()
    before = ranked(page)
    page.get_by_label("stars", exact=True).fill("2")
    until(lambda: page.locator(".cell.changed").count() == 1)
    until(lambda: page.locator("[role=listbox][aria-busy=false]").count() == 1)
    page.get_by_label("stars", exact=True).fill("3")
    page.get_by_text("The list was not ranked: Refused: too many requests (429)").wait_for()
    assert "Ask again in" in page.get_by_role("alert").inner_text()
    assert len(ranked(page)) == len(before)
    assert "Below is the order of the last answer." in text_of(page)


def test_a_service_that_is_gone_is_said_to_be(serve, shop, open_page):
    service = serve(bundle=shop, ui="true")
    page = open_page(service)
    before = ranked(page)
    service.stop()
    page.get_by_label("stars", exact=True).fill("2")
    page.get_by_text("No answer from the service").wait_for()
    assert ranked(page) == before
    page.get_by_role("button", name="Ask again").last.click()
    page.get_by_text("The service was asked again: No answer from the service").wait_for()
    assert ranked(page) == before
    show(page, "Why")
    page.get_by_text("No explanation: No answer from the service").wait_for()
    show(page, "Models")
    page.get_by_role("heading", name="Served by this worker").wait_for()


def test_a_page_that_opens_on_nothing_is_not_empty(demo, open_page):
    page = open_page(demo)
    page.route("**/info*", lambda route: route.abort())
    page.reload()
    assert "Nothing is known of the service: No answer" in page.get_by_role("alert").inner_text()
    page.unroute("**/info*")
    page.get_by_role("button", name="Ask again").click()
    assert ranked(page)


def test_golden_lists_that_are_gone_are_said_to_be(serve, shop, tmp_path, open_page):
    copy = tmp_path / "shop" / "7"
    shutil.copytree(shop, copy)
    service = serve(bundle=copy, ui="true", queue_ms=1000 * NEVER_S)
    (copy / "golden.jsonl").unlink()
    page = open_page(service)
    page.get_by_text("golden lists cannot be shown: golden.jsonl: does not exist").wait_for()
    paste(page, by_name())
    assert len(ranked(page)) == 7
    assert str(tmp_path) not in page.content()


def test_without_the_bundles_data_lists_are_ranked_all_the_same(demo, open_page):
    page = open_page(demo)
    page.route("**/ui/bundle*", lambda route: route.fulfill(status=503, body="<html>a proxy's page"))
    page.reload()
    page.get_by_text("The bundle's own data are missing").first.wait_for()
    paste(
        page, [{f"n{number}": 0.1 * number for number in range(1, 11)}, {f"n{number}": 0.5 for number in range(1, 11)}]
    )
    assert len(ranked(page)) == 2
    type_value(page, "n5", 1) if page.get_by_role("spinbutton", name="n5, number").count() else page.get_by_label(
        "n5", exact=True
    ).fill("1")
    until(lambda: page.locator(".cell.changed").count() == 1)


HOSTILE = {
    "markup": "<img src=x onerror=hacked=1>",
    "script": "</script><script>hacked=1</script>",
    "right to left": "\u202eevil\u202c مرحبا بالعالم",
    "marks": "Z͑ͫ̓ͪ̂ͫ̽a̴l̷g̴o͟",
    "template": "${hacked=1}{{hacked=1}}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_ids_and_categories_are_text(demo, open_page, text):
    numbers = {f"n{number}": 0.1 * number for number in range(1, 11)}
    page = open_page(demo, width=360)
    ranked(page)
    paste(page, [{"id": text, **numbers, "c1": text}, {"id": "plain", **numbers, "c1": text * 400}])
    until(lambda: "plain" in ranked(page))
    assert sorted(ranked(page)) == sorted([text.strip(), "plain"])
    select(page, "plain")
    page.get_by_role("heading", name="Values of plain").wait_for()
    assert (
        "unknown in training"
        in page.get_by_role("combobox", name="c1", exact=True).locator("option").first.inner_text()
    )
    show(page, "Why")
    page.get_by_label("Candidate").wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script:not([src])").count() == 0
    assert lies_over_the_edge(page) <= 0


def test_ten_thousand_characters_are_shortened_or_refused(demo, open_page):
    numbers = {f"n{number}": 0.1 * number for number in range(1, 11)}
    page = open_page(demo, width=360)
    ranked(page)
    paste(page, [{"id": "x" * 500, **numbers}, {"id": "y" * 500, **numbers}])
    until(lambda: any(name.startswith("xxx") for name in ranked(page)))
    assert max(map(len, ranked(page))) < 100
    assert lies_over_the_edge(page) <= 0
    paste(page, [{"id": "x" * 10_000, **numbers}, {"id": "y", **numbers}])
    page.get_by_text("Unprocessable").wait_for()
    assert len(text_of(page)) < 20_000
    assert lies_over_the_edge(page) <= 0
