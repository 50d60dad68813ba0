"""Try: probabilities, a lowest one, and weights of goals, where the bundle has them."""

import httpx
import pytest

from support.pages.page_actions import ORDER, ranked, select, show, slide, text_of
from support.pages.page_lists import golden
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly

LIST = 5
"""Golden list of the hand-made bundle, from 0."""


@pytest.fixture
def page(calibrated, open_page):
    page = open_page(calibrated)
    page.get_by_label("Golden list of the bundle").select_option(str(LIST))
    wait_for(page, answer_of(calibrated))
    return page


def answer_of(service, **options):
    body = {**golden(service, LIST), "probabilities": True, **options}
    answer = httpx.post(service.url + "/rerank", json=body, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def wait_for(page, answer):
    """Until the page shows the order and the probabilities of an answer."""
    due = [(one["id"], f"probability {100 * one['probability']:.0f} %") for one in answer["results"]]
    rows = page.locator(ORDER)

    def shown():
        shares = [" ".join(text.split()) for text in rows.locator(".share").all_inner_texts()]
        return [*zip(rows.locator(".name").all_inner_texts(), shares, strict=False)]

    until(lambda: shown() == due)


def test_a_lowest_probability_leaves_out_and_counts(page, calibrated):
    every = answer_of(calibrated)["probabilities"]
    slide(page, "Leave out below", 50)
    wait_for(page, answer_of(calibrated, min_probability=0.5))
    left_out = sum(value < 0.5 for value in every)
    assert 0 < left_out < len(every)
    page.get_by_text(f"{left_out} of {len(every)} left out", exact=True).wait_for()
    number = page.get_by_label("Leave out below, per cent")
    assert number.input_value() == "50"
    number.fill("")
    number.press_sequentially("45.5")
    wait_for(page, answer_of(calibrated, min_probability=0.455))
    number.fill("")
    wait_for(page, answer_of(calibrated))
    assert "left out" not in text_of(page)


def test_a_candidate_that_is_left_out_is_said_to_be(page, calibrated):
    name = answer_of(calibrated)["results"][-1]["id"]
    select(page, name)
    slide(page, "Leave out below", 100)
    page.get_by_text("Every candidate is left out.").wait_for()
    said = page.locator(".order .said")
    until(lambda: said.inner_text() == f"{name}: left out.")
    assert not page.locator(".order .columns").is_visible(), "nothing is before or after"


def test_a_candidate_that_is_left_out_can_be_chosen_under_why(page, calibrated):
    results = answer_of(calibrated)["results"]
    select(page, results[-1]["id"])
    slide(page, "Leave out below", 100)
    page.get_by_text("Every candidate is left out.").wait_for()
    show(page, "Why")
    choice = page.get_by_label("Candidate", exact=True)
    assert choice.input_value() == str(results[-1]["index"])
    assert choice.locator("option").count() == len(results)


def test_lines_lead_to_the_places_that_are_shown(page, calibrated):
    slide(page, "Leave out below", 50)
    wait_for(page, answer_of(calibrated, min_probability=0.5))
    shown = page.locator(".places:not(.now) li").count()
    paths = page.locator(".lines path").evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
    assert sorted(float(path.split()[2]) for path in paths) == [20 + 40 * place for place in range(shown)]


def test_a_weight_ranks_anew_and_is_compared_with_the_default_ones(page, calibrated):
    plain = answer_of(calibrated)
    weighted = answer_of(calibrated, weights={"margin": 1.5})
    assert weighted["ranks"] != plain["ranks"]
    slide(page, "margin", 1.5)
    wait_for(page, weighted)
    assert page.get_by_label("Compare with").input_value() == "edits"
    before = [text.split()[0] for text in page.locator(".places:not(.now) .name").all_inner_texts()]
    assert before == [one["id"] for one in plain["results"]]
    moved = page.locator(ORDER).locator(".moved .unseen").all_inner_texts()
    was = [plain["ranks"][one["index"]] for one in weighted["results"]]
    assert [text.startswith("same") for text in moved] == [now == then for now, then in enumerate(was, start=1)]
    page.get_by_role("button", name="Default weights").click()
    wait_for(page, plain)
    assert page.get_by_label("Compare with").input_value() == "first"


def test_a_weight_can_be_typed_and_an_empty_field_is_the_default(page, calibrated):
    number = page.get_by_role("spinbutton", name="margin, number")
    assert (number.input_value(), number.get_attribute("placeholder")) == ("", "0.3")
    number.press_sequentially("2.5")
    wait_for(page, answer_of(calibrated, weights={"margin": 2.5}))
    page.get_by_role("slider", name="booked", exact=True).press("Home")
    wait_for(page, answer_of(calibrated, weights={"margin": 2.5, "booked": 0}))
    number.fill("")
    wait_for(page, answer_of(calibrated, weights={"booked": 0}))
    assert (
        page.get_by_role("slider", name="margin", exact=True).get_attribute("aria-valuetext") == "0.3, by default 0.3"
    )


def test_a_link_and_why_have_the_weights_and_the_cutoff(page, open_page, calibrated):
    slide(page, "eco", 1.0)
    slide(page, "Leave out below", 40)
    due = answer_of(calibrated, weights={"eco": 1.0}, min_probability=0.4)
    wait_for(page, due)
    page.get_by_role("button", name="Link to this").click()
    link = page.get_by_label("Link to this list").input_value()
    other = open_page(calibrated)
    other.goto("about:blank")
    other.goto(link)
    wait_for(other, due)
    with other.expect_request("**/explain") as asked:
        show(other, "Why")
    body = asked.value.post_data_json
    assert (body["weights"], body["min_probability"]) == ({"eco": 1.0}, 0.4)


def test_a_bundle_without_them_shows_and_is_asked_for_neither(uncalibrated, open_page):
    with (page := open_page(uncalibrated)).expect_request("**/rerank") as asked:
        page.reload()
    ranked(page)
    assert not {"probabilities", "min_probability", "weights"} & asked.value.post_data_json.keys()
    assert page.get_by_label("Leave out below").count() == page.get_by_text("Weights of the goals").count() == 0
