"""Try: values that are changed, and the order before the edits."""

import httpx
import pytest

from support.pages.page_actions import hold, ranked, select, slide, type_value, wait_for
from support.pages.page_lists import answered, golden
from support.waiting import until

pytestmark = pytest.mark.nightly


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


@pytest.mark.parametrize("text", ["0.05", "-0.05", "-0.5", "1.25e-3", "10.0"])
def test_a_number_can_be_typed_key_by_key(demo, open_page, text):
    page, body = open_page(demo), golden(demo, 0)
    ranked(page)
    select(page, body["ids"][0])
    field = page.get_by_role("spinbutton", name="n5, number")
    asked = []
    page.on("request", lambda request: asked.append(request) if request.url.endswith("/rerank") else None)
    field.fill("")
    field.press_sequentially(text)
    assert field.input_value() == text
    column = body["feature_names"].index("n5")
    wait_for(page, lambda: asked[-1].post_data_json["features"][0][column] == float(text))
    field.press("Tab")
    until(lambda: float(field.input_value()) == float(text))
    body["features"][0][column] = float(text)
    until(lambda: ranked(page) == answered(demo, body))


def test_half_a_number_changes_nothing_and_goes_when_the_field_is_left(demo, open_page):
    page = open_page(demo)
    ranked(page)
    field = page.get_by_role("spinbutton", name="n5, number")
    field.fill("1.5")
    field.press("End")
    field.press_sequentially("e")
    field.press("Tab")
    until(lambda: field.input_value() == "1.5")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("shortest(0.10000000149011612)", 0.1),
        ("shortest(0.30000001192092896)", 0.3),
        ("shortest(-2.7182817459106445)", -2.7182817),
        ("shortest(1.7e300)", 1.7e300),
        ("shortest(0)", 0),
        (
            "[0.999, 0.9951, 0.99999, 1, 0.98, 0].map(percent)",
            ["99.9 %", "99.5 %", "> 99.99 %", "100 %", "98 %", "0 %"],
        ),
        ("[exactCell(-0.25), exactCell('a'), exactCell(null)]", ["−0.25", "a", "missing"]),
    ],
)
def test_numbers_as_text(demo, open_page, expression, value):
    page = open_page(demo, "#tab=models")
    module = '({ exactCell, percent, shortest } = await import("./shared/format.js"))'
    assert page.evaluate(f"async () => {{ let exactCell, percent, shortest; {module}; return {expression}; }}") == value


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


def placed_before(page):
    """Names in the order that the present one is compared with."""
    return page.locator(".places:not(.now) .name").all_inner_texts()


def test_the_order_before_my_edits_is_there_after_a_link_and_with_another_strategy(demo, open_page):
    body = golden(demo, 2)
    page = open_page(demo)
    ranked(page)
    page.get_by_label("Golden list of the bundle").select_option("2")
    until(lambda: set(ranked(page)) == set(body["ids"]))
    type_value(page, "n5", 3.5)
    page.get_by_role("button", name="Undo all 1 edit").wait_for()
    page.get_by_role("button", name="Link to this").click()
    link = page.get_by_label("Link to this list").input_value()
    other, asked = open_page(demo), []
    ranked(other)
    other.on("request", lambda request: asked.append(request) if request.url.endswith("/rerank") else None)
    other.goto("about:blank")
    other.goto(link)
    other.get_by_label("Compare with").select_option("edits")
    until(lambda: placed_before(other) == answered(demo, body))
    assert len(asked) == 2, "the list as it is, and once without its edits"
    for strategy in ("first_stage", "qilcm"):
        other.get_by_label("Strategy").select_option(strategy)
        other.get_by_text(f"Ranked by {strategy}, chosen by the request.").wait_for()
        until(lambda: other.get_by_label("Compare with").locator("option").count() >= 2)
        until(lambda: other.get_by_label("Compare with").input_value() == "edits")
        until(lambda strategy=strategy: placed_before(other) == answered(demo, body | {"strategy": strategy}))
    assert answered(demo, body | {"strategy": "first_stage"}) != answered(demo, body | {"strategy": "qilcm"})


def test_a_late_answer_of_a_former_strategy_is_no_order_before_my_edits(demo, open_page):
    body = golden(demo, 2)
    page, held = open_page(demo), []
    ranked(page)
    page.get_by_label("Golden list of the bundle").select_option("2")
    until(lambda: set(ranked(page)) == set(body["ids"]))
    page.route("**/rerank", lambda route: hold(route, held), times=1)
    page.get_by_label("Strategy").select_option("first_stage")
    wait_for(page, lambda: len(held) == 1)
    page.get_by_label("Strategy").select_option("qilcm")
    type_value(page, "n5", 3.5)
    held[0].continue_()
    page.get_by_text("Ranked by qilcm, chosen by the request.").wait_for()
    page.get_by_label("Compare with").select_option("edits")
    until(lambda: placed_before(page) == answered(demo, body | {"strategy": "qilcm"}))
