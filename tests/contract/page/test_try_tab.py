"""Try: a list in, its order out, and every value open to change."""

import json
from pathlib import Path

import pytest

from support.http.processes import Process
from support.pages.page_actions import ORDER, hold, paste, ranked, show, text_of, type_value, wait_for
from support.pages.page_lists import NAMES, ROWS, answered, golden
from support.service.bundles import make_bundle
from support.waiting import NEVER_S, until

pytestmark = pytest.mark.nightly

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo" / "1"


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


@pytest.mark.parametrize("form", ["matrix", "columns", "by name", "objects", "csv", "semicolons"])
def test_a_list_can_be_pasted_in_every_form(demo, open_page, form):
    ids = [f"sku {number}" for number in range(len(ROWS))]
    named = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
    cells = [[*map(str, row)] for row in ROWS]
    lines = [["id", "qid", *NAMES], *([i, "7", *row] for i, row in zip(ids, cells, strict=True))]
    text = {
        "matrix": {"feature_names": NAMES, "features": ROWS, "ids": ids},
        "columns": {"columns": dict(zip(NAMES, zip(*ROWS, strict=True), strict=True)), "ids": ids},
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
        ('{"what": 1}', "Neither candidates, features nor columns"),
        ('[{"n1": true}]', "Candidate 1, n1: true is no number, category or null"),
        ('{"features": [[1], [1, 2]], "feature_names": ["n1"]}', "Row 2 has 2 values; there are 1 names"),
        ('{"columns": {"n1": [1, 2], "n2": [1]}}', "columns are not arrays of one length"),
        ("n1,n2\n1,2\n3", "Line 3 has 1 values, and the first line names 2"),
        ('n1,n2\n"1,2', "The quotation marks that begin in line 2 never end"),
        ("n1,n2\n1,far", "Candidate 1, n2: far is no number"),
        (
            [dict(zip(NAMES, ROWS[0], strict=True)), {"id": "b", "n1": 1}],
            "Candidate 2 (b) lacks n5, which the bundle needs; null is allowed",
        ),
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


def test_a_word_for_missing_that_is_a_category_is_that_category(serve, tmp_path, open_page):
    service = serve(bundle=make_bundle(tmp_path / "shop" / "1"), ui="true")
    text = "id,price,stars,carrier\na,1,1,NA\nb,1,1,none\nc,NA,1,A5\n"
    page = open_page(service)
    ranked(page)
    with page.expect_request("**/rerank") as asked:
        paste(page, text)
    rows = [[1, 1, None], [1, 1, None], [None, 1, "A5"]]
    assert asked.value.post_data_json["features"] == rows
    page.route("**/ui/bundle*", lambda route: route.fulfill(json=with_category(route.fetch().json(), "NA")))
    page.reload()
    ranked(page)
    with page.expect_request("**/rerank") as asked:
        paste(page, text)
    rows[0][2] = "NA"
    assert asked.value.post_data_json["features"] == rows


def with_category(shown, name):
    """Of the feature ``carrier``."""
    shown["features"][-1]["categories"].append(name)
    shown["features"][-1]["known"] += 1
    return shown


def test_another_list_has_neither_the_pin_nor_the_failure_of_the_one_before(demo, open_page):
    page = open_page(demo)
    ranked(page)
    show(page, "Why")
    page.get_by_role("button", name="Pin it, to compare another with it").click()
    page.get_by_text("Pinned: offer-").wait_for()
    show(page, "Try")
    page.route("**/rerank", lambda route: route.abort())
    paste(page, [{"n1": 0.5}, {"n1": 1.5}])
    page.get_by_role("alert").wait_for()
    page.unroute("**/rerank")
    held = []
    page.route("**/rerank", lambda route: hold(route, held), times=1)
    page.get_by_label("Golden list of the bundle").select_option("2")
    page.get_by_text("Ranking …").wait_for()
    assert page.get_by_role("alert").count() == 0, "the list is being ranked: nothing is known to be wrong with it"
    wait_for(page, lambda: held)
    held[0].continue_()
    ranked(page)
    show(page, "Why")
    page.get_by_role("button", name="Pin it, to compare another with it").wait_for()


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


def test_the_order_can_be_walked_by_keyboard(demo, open_page):
    page = open_page(demo)
    names = ranked(page)
    page.locator("[role=listbox]").focus()
    for key, name in [("End", names[-1]), ("ArrowUp", names[-2]), ("Home", names[0]), ("ArrowDown", names[1])]:
        page.keyboard.press(key)
        until(lambda name=name: page.locator(f"{ORDER}[aria-selected=true] .name").inner_text() == name)
        active = page.locator("[role=listbox]").get_attribute("aria-activedescendant")
        assert page.locator(f"#{active} .name").inner_text() == name
        place = [page.locator(f"#{active}").get_attribute(f"aria-{what}") for what in ("posinset", "setsize")]
        assert place == [str(names.index(name) + 1), str(len(names))]
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


def test_rules_are_named_at_the_results_that_they_touch(open_page, tmp_path):
    ids = [f"sku {number}" for number in range(len(ROWS))]
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[demo]]\nname = "<b>campaign</b>"\naction = "pin"\nid = "sku 2"\nplace = 1\n'
        '[[demo]]\naction = "exclude"\nids = ["sku 0"]\n[[demo]]\naction = "exclude"\nwhere = { colour = 1 }\n'
    )
    service = Process(bundle=DEMO, ui="true", explain="true", rules=file, queue_ms=1000 * NEVER_S, keep_alive_s=NEVER_S)
    try:
        page = open_page(service.wait_until_ready())
        ranked(page)
        paste(page, {"feature_names": NAMES, "features": ROWS, "ids": ids})
        until(lambda: page.get_by_role("option", name="<b>campaign</b>").count() == 1)
        first, *others = page.locator("[role=option]").all_inner_texts()
        assert "sku 2" in first
        assert len(others) == len(ROWS) - 2
        assert not any("sku 0" in one for one in others)
        assert "file rule 2 (exclude): 1 candidate" in text_of(page)
        assert "file rule 3 (exclude): not applied" in text_of(page)
        page.get_by_role("button", name="Why this place?").click()
        page.get_by_text("Rules exclude it: file rule 2.").wait_for()
    finally:
        service.stop()
