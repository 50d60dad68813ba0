"""Try: links that hold a list and its edits."""

import pytest

from support.pages.page_actions import paste, ranked, select, type_value
from support.pages.page_lists import NAMES, ROWS, golden
from support.waiting import until

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("own", [False, True], ids=["golden", "pasted"])
def test_a_link_opens_the_same_list_with_its_edits_and_is_sent_to_nobody(demo, open_page, own):
    page = open_page(demo)
    ranked(page)
    if own:
        ids = ["ä", "<b>", "مرحبا", "d", "e"]
        paste(page, {"feature_names": NAMES, "features": ROWS, "ids": ids})
        until(lambda: set(ranked(page)) == set(ids))
    select(page, ranked(page)[-1])
    type_value(page, "n5", 3.5)
    page.get_by_role("button", name="Undo all 1 edit").wait_for()
    wanted = ranked(page)
    page.get_by_role("button", name="Link to this").click()
    link = page.get_by_label("Link to this list").input_value()
    assert link == page.url
    sent = []
    other = open_page(demo)
    other.on("request", lambda request: sent.append(request.url))
    other.goto("about:blank")
    other.goto(link)
    until(lambda: ranked(other) == wanted)
    assert other.get_by_role("spinbutton", name="n5, number").input_value() == "3.5"
    assert sent
    assert not [url for url in sent if "list=" in url.partition("#")[0]]


def test_a_link_that_is_pasted_into_an_open_page_is_followed(demo, open_page):
    page = open_page(demo)
    ranked(page)
    page.get_by_label("Golden list of the bundle").select_option("2")
    until(lambda: set(ranked(page)) == set(golden(demo, 2)["ids"]))
    type_value(page, "n5", 3.5)
    page.get_by_role("button", name="Undo all 1 edit").wait_for()
    wanted = ranked(page)
    page.get_by_role("button", name="Link to this").click()
    link = page.get_by_label("Link to this list").input_value()
    other = open_page(demo, "#tab=models")
    other.get_by_role("tab", name="Models", selected=True).wait_for()
    other.evaluate("link => { location.href = link; }", link)
    other.get_by_role("button", name="Undo all 1 edit").wait_for()
    until(lambda: ranked(other) == wanted)
    other.evaluate("location.hash = '#tab=try&list=nonsense!'")
    other.get_by_text("The link is not shown as it was").wait_for()
    assert ranked(other) == wanted, "the list stays"


@pytest.mark.parametrize("held", ["nonsense!", "AAAA", "eyJ9"])
def test_a_damaged_link_is_said_to_be_one_and_the_page_works(demo, open_page, held):
    page = open_page(demo, f"#tab=try&list={held}")
    assert ranked(page)
    assert "The link is not shown as it was" in page.get_by_role("alert").inner_text()


def test_a_link_of_a_bundle_that_is_not_served_says_so(demo, open_page):
    page = open_page(demo)
    ranked(page)
    held = page.evaluate(
        """async () => (await import("./shared/fragment.js")).packed(
            {model: "other", version: "9", golden: 0, whole: null, edits: [], strategy: "auto", selected: 0})"""
    )
    other = open_page(demo, f"#tab=try&list={held}")
    assert ranked(other)
    assert "other/9, is not served here" in other.get_by_role("alert").inner_text()
