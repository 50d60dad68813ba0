"""Try: a list in, its order out, and every value open to change."""

import json

import httpx
import pytest

from support.pages.page_actions import ORDER, paste, ranked, select, show, slide, text_of, type_value
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

NAMES = [*(f"n{number}" for number in range(1, 11)), "c1"]
ROWS = [[0.2 * number - 0.5 * column for column in range(10)] + [f"v{number + 1}"] for number in range(5)]


def answered(service, body):
    """The service's own answer: ids, best first."""
    answer = httpx.post(service.url + "/rerank", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["results"]]


def golden(service, at):
    shown = httpx.get(service.url + "/ui/bundle").json()
    rows = shown["golden"][at]["rows"]
    names = [feature["name"] for feature in shown["features"]]
    return {"feature_names": names, "features": rows, "ids": [f"offer-{n + 1}" for n in range(len(rows))]}


def test_a_golden_list_is_there_at_once_and_another_can_be_chosen(demo, open_page):
    page = open_page(demo)
    assert ranked(page) == answered(demo, golden(demo, 0))
    page.get_by_label("Golden list of the bundle").select_option("2")
    wanted = golden(demo, 2)
    page.wait_for_function(
        "count => document.querySelectorAll('[role=option]').length === count", arg=len(wanted["ids"])
    )
    assert ranked(page) == answered(demo, wanted)
    assert "Time in the service" in text_of(page)


def flipping(service, body):
    """A cell and a value that give another order."""
    before, shown = answered(service, body), httpx.get(service.url + "/ui/bundle").json()
    for row in range(len(body["features"])):
        for column, feature in enumerate(shown["features"]):
            for at in (1, 5) if feature["quantiles"] else ():
                rows = [list(values) for values in body["features"]]
                rows[row][column] = feature["quantiles"][at]
                if answered(service, body | {"features": rows}) != before:
                    return row, column, feature["name"], feature["quantiles"][at]
    raise AssertionError("no value flips the order")


def test_an_edit_flips_the_order_at_once(demo, open_page):
    page, body = open_page(demo), golden(demo, 0)
    before = ranked(page)
    row, column, name, value = flipping(demo, body)
    select(page, body["ids"][row])
    slide(page, name, value)
    body["features"][row][column] = float(page.get_by_role("spinbutton", name=f"{name}, number").input_value())
    until(lambda: ranked(page) == answered(demo, body))
    assert ranked(page) != before
    type_value(page, name, round(value, 3))
    body["features"][row][column] = round(value, 3)
    until(lambda: ranked(page) == answered(demo, body))
    page.get_by_role("button", name="Undo all 1 edit").click()
    until(lambda: ranked(page) == before)


def test_a_category_and_a_missing_value_can_be_chosen(demo, open_page):
    page, body = open_page(demo), golden(demo, 1)
    page.get_by_label("Golden list of the bundle").select_option("1")
    page.wait_for_function("count => document.querySelectorAll('[role=option]').length === count", arg=len(body["ids"]))
    last = ranked(page)[-1]
    select(page, last)
    row = body["features"][body["ids"].index(last)]
    page.get_by_role("combobox", name="c1", exact=True).select_option("v3")
    page.get_by_role("checkbox", name="n1 is missing").check()
    row[body["feature_names"].index("c1")] = "v3"
    row[body["feature_names"].index("n1")] = None
    until(lambda: ranked(page) == answered(demo, body))
    assert "was " in page.locator(".cell.changed").first.inner_text()
    assert page.locator(".cell.changed").count() == 2


@pytest.mark.parametrize("form", ["matrix", "by name", "objects", "csv", "semicolons"])
def test_a_list_can_be_pasted_in_every_form(demo, open_page, form):
    ids = [f"sku {number}" for number in range(len(ROWS))]
    named = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
    cells = [[*map(str, row)] for row in ROWS]
    lines = [["id", "qid", *NAMES], *([i, "7", *row] for i, row in zip(ids, cells, strict=True))]
    text = {
        "matrix": {"feature_names": NAMES, "features": ROWS, "ids": ids},
        "by name": {"candidates": [{"id": i, "features": row} for i, row in zip(ids, named, strict=True)]},
        "objects": [{"id": i, **row} for i, row in zip(ids, named, strict=True)],
        "csv": "\r\n".join(",".join(line) for line in lines),
        "semicolons": "\n".join(";".join(line).replace(".", ",") for line in lines),
    }[form]
    page = open_page(demo)
    ranked(page)
    paste(page, text)
    wanted = answered(demo, {"feature_names": NAMES, "features": ROWS, "ids": ids})
    until(lambda: ranked(page) == wanted)
    assert ("Left out, as the bundle does not know it: qid" in text_of(page)) is (form in ("csv", "semicolons"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "This is no JSON"),
        ("[]", "The list has no candidates"),
        ('{"what": 1}', "Neither candidates nor features"),
        ('[{"n1": true}]', "Candidate 1, n1: true is no number, category or null"),
        ('{"features": [[1], [1, 2]], "feature_names": ["n1"]}', "Row 2 has 2 values; there are 1 names"),
        ("n1,n2\n1,2\n3", "Line 3 has 1 values, and the first line names 2"),
        ('n1,n2\n"1,2', "The quotation marks that begin in line 2 never end"),
        ("n1,n2\n1,far", "Candidate 1, n2: far is no number"),
        ("price,stars\n1,2", "None of its columns is a feature of the bundle"),
        (json.dumps([{"n1": 0}] * 1001), "The list has 1001 candidates; the service takes 1000"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_list_stays(demo, open_page, text, says):
    page = open_page(demo)
    before = ranked(page)
    paste(page, text)
    assert says in page.get_by_role("alert").inner_text()
    assert ranked(page) == before


def test_what_the_service_refuses_is_shown_with_its_reason(demo, open_page):
    page = open_page(demo)
    ranked(page)
    paste(page, [{"n1": 0.5}, {"n1": 1.5}])
    said = page.get_by_role("alert").inner_text()
    assert "Conflict (409)" in said
    assert "n5" in said, "the feature that is missing"


def test_a_file_can_be_chosen_or_dropped(demo, open_page):
    text = "\n".join([",".join(NAMES), *(",".join(map(str, row)) for row in ROWS)])
    page = open_page(demo)
    ranked(page)
    page.get_by_text("Paste JSON or CSV, or drop a file here").click()
    page.set_input_files("input[type=file]", {"name": "rows.csv", "mimeType": "text/csv", "buffer": text.encode()})
    page.get_by_role("heading", name="rows.csv: 5 candidates").wait_for()
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.items.add(new File([text], "dropped.csv"));
            const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
            document.querySelector(".source").dispatchEvent(drop);
        }""",
        text.rpartition("\n")[0],
    )
    page.get_by_role("heading", name="dropped.csv: 4 candidates").wait_for()


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


def test_the_order_can_be_walked_by_keyboard(demo, open_page):
    page = open_page(demo)
    names = ranked(page)
    page.locator("[role=listbox]").focus()
    for key, name in [("End", names[-1]), ("ArrowUp", names[-2]), ("Home", names[0]), ("ArrowDown", names[1])]:
        page.keyboard.press(key)
        until(lambda name=name: page.locator(f"{ORDER}[aria-selected=true] .name").inner_text() == name)
        active = page.locator("[role=listbox]").get_attribute("aria-activedescendant")
        assert page.locator(f"#{active} .name").inner_text() == name
    assert names[1] in page.get_by_role("heading", name="Values of").inner_text()


def test_a_strategy_can_be_chosen(demo, open_page):
    page = open_page(demo)
    ranked(page)
    page.get_by_label("Strategy").select_option("first_stage")
    until(lambda: ranked(page) == answered(demo, golden(demo, 0) | {"strategy": "first_stage"}))
    page.get_by_text("Ranked by first_stage, chosen by the request.").wait_for()


def test_a_thousand_candidates_are_drawn_in_parts(demo, open_page):
    rows = [[((7 * n + 13 * c) % 101) / 25 - 2 for c in range(10)] + [f"v{n % 8 + 1}"] for n in range(1000)]
    body = {"feature_names": NAMES, "features": rows, "ids": [f"offer {n}" for n in range(1000)]}
    page = open_page(demo)
    ranked(page)
    paste(page, body)
    wanted = answered(demo, body)
    until(lambda: ranked(page) == wanted[:50])
    assert page.evaluate("document.querySelectorAll('*').length") < 2500
    page.get_by_role("button", name="After").click()
    until(lambda: ranked(page) == wanted[50:100])
    page.locator("[role=listbox]").focus()
    page.keyboard.press("End")
    until(lambda: ranked(page) == wanted[950:])
    type_value(page, "n5", 5.0)
    body["features"][body["ids"].index(wanted[-1])][4] = 5.0
    until(lambda: set(ranked(page)) == set(answered(demo, body)[950:]))
    show(page, "Why")
    assert page.get_by_label("Candidate").locator("option").count() == 1000
