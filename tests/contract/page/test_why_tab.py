"""Why: explanations as the service answers them; recorded ones stand in for it."""

import json

import pytest

from support.pages.explained import contribution, explained
from support.pages.page_actions import paste, ranked, select, show, text_of, wait_for
from support.service.bundles import make_bundle
from support.waiting import NEVER_S, until

pytestmark = pytest.mark.nightly

PASSING = explained()["explanations"][0]["passing"]
NAMES = ("price", "stars", "bm25", "carrier")
NEAR = [dict(zip(NAMES, (-1 + n / 100, 2, -2, "A5"), strict=True)) for n in range(5)]
LAST_TOO_DEAR = [*NEAR, dict(zip(NAMES, (5000, -2, -2, "A5"), strict=True))]
"""For the second stage of a bundle, which gives NaN for the sixth, should it come to see it."""


def test_a_candidate_is_explained(why):
    page, asked = why()
    page.get_by_text("offer-3 is number 2 of 5.").wait_for()
    assert asked[0]["candidate"] == 2
    assert asked[0].get("against") is None
    assert len(asked[0]["features"]) == 5
    said = text_of(page)
    for words in (
        "Second stage: qilcm",
        "which is 0.5 above a candidate of the list's middle values",
        "sampled, 640 evaluations",
        "First stage: lightgbm",
        "which is 0.75 above the mean of the list",
        "To pass offer-2, on place 1",
        "n5 from 1.5 to 2.75",
        "n1 from missing to 0.5 and c1 from v3 to v2",
        "84 changes tried",
        "offer-5: place 2, not 3",
        "0.45: above 50 % of training's queries",
        "qilcm answered, decided by: bundle",
    ):
        assert words in said, words
    assert page.evaluate("window.hacked") is None
    assert "<img src=x onerror=hacked()>" in said


def test_bars_have_the_size_and_the_side_of_what_they_stand_for(why):
    page, _ = why()
    bars = page.locator("section[aria-label^='First stage'] .bar")
    page.get_by_role("button", name="Show all 12").click()
    until(lambda: bars.count() == 12)
    boxes = [bars.nth(at).bounding_box() for at in range(2)]
    assert boxes[0]["width"] / boxes[1]["width"] == pytest.approx(0.9 / 0.25, rel=0.05)
    assert boxes[0]["x"] == pytest.approx(boxes[1]["x"] + boxes[1]["width"], abs=2), (
        "one ends at zero, one begins there"
    )


def test_goals_are_explained_together(why):
    shares = [
        {"goal": "booked", "weight": 1.0, "contribution": 0.75},
        {"goal": "margin", "weight": 0.3, "contribution": -0.25},
    ]
    together = {**explained()["explanations"][0]["first_stage"], "ranker": "goals", "score": 2.5, "goals": shares}
    page, _ = why(explained(goals=together))
    by_goal = page.get_by_role("region", name="All goals: by goal")
    by_goal.wait_for()
    rows = [" ".join(text.split()) for text in by_goal.get_by_role("row").all_inner_texts()]
    assert rows == ["goal weight adds to the score", "booked 1 +0.75", "margin 0.3 −0.25"]
    assert "The stages below are of booked alone." in " ".join(text_of(page).split())
    assert page.get_by_role("region", name="All goals: by feature").get_by_role("row").count() == 1 + 10


def test_goals_that_were_late_say_so_and_one_goal_says_nothing(why):
    page, _ = why(explained(incomplete=["goals"]))
    page.get_by_role("heading", name="All goals").wait_for()
    assert "goals is not complete" in text_of(page)
    page, _ = why()
    page.get_by_text("offer-3 is number 2 of 5.").wait_for()
    assert page.get_by_role("heading", name="All goals").count() == 0


def test_what_it_would_take_can_be_tried(why):
    page, _ = why()
    page.get_by_role("listitem").filter(has_text="n5 from 1.5").get_by_role("button", name="Try it").click()
    page.get_by_role("heading", name="Values of offer-3").wait_for()
    assert page.get_by_role("spinbutton", name="n5, number").input_value() == "2.75"
    assert page.get_by_label("Compare with").input_value() == "edits"


def test_a_threshold_is_shown_with_all_its_digits(why):
    """Rounded to four, the second of these would not pass."""
    changes = [{"feature": "n5", "from": 0.10000000149011612, "to": -2.7182817459106445}]
    page, _ = why(explained(passing=PASSING | {"one": changes, "two": None}))
    page.get_by_text("n5 from 0.1 to −2.7182817").wait_for()


def test_a_feature_that_the_list_has_no_column_of_can_be_tried(demo, open_page):
    """One whose name stands in the context has that value for the others; all the rest are missing."""
    names = [f"n{number}" for number in range(2, 10)]
    answer = explained(passing=PASSING | {"one": [{"feature": "n1", "from": None, "to": 0.5}]})
    two = answer["explanations"][0]["passing"]["two"]
    two[:] = [{"feature": "n10", "from": 0.25, "to": 0.75}, {"feature": "c1", "from": None, "to": "v2"}]
    page, ranked_lists = open_page(demo), []

    def rank(route):
        ranked_lists.append(route.request.post_data_json)
        route.fulfill(json=answer_of(len(ranked_lists[-1]["features"])))

    page.route("**/explain", lambda route: route.fulfill(json=answer))
    page.route("**/rerank", rank)
    ranked(page)
    paste(page, {"feature_names": names, "features": [[0.5] * 8] * 3, "context": {"n10": 0.25}})
    wait_for(page, lambda: ranked_lists[-1]["feature_names"] == names)
    for way, changed, others in (
        (0, {"n1": 0.5}, {"n1": None}),
        (1, {"n10": 0.75, "c1": "v2"}, {"n10": 0.25, "c1": None}),
    ):
        show(page, "Why")
        page.get_by_role("listitem").get_by_role("button", name="Try it").nth(way).click()
        wait_for(page, lambda changed=changed: any(row_of(asked, 2) >= changed.items() for asked in ranked_lists))
        (asked,) = [asked for asked in ranked_lists if row_of(asked, 2) >= changed.items()]
        assert row_of(asked, 0) >= others.items()
    page.get_by_text("was missing").first.wait_for()


def row_of(asked, row):
    """What a request says of a candidate, as pairs."""
    return dict(zip(asked["feature_names"], asked["features"][row], strict=True)).items()


def answer_of(length):
    """An order as it was sent."""
    results = [
        {"index": n, "id": None, "rank": n + 1, "relevance_score": 1 / length, "stage": "second_stage"}
        | {"first_stage_rank": n + 1, "first_stage_score": 0.0}
        for n in range(length)
    ]
    meta = {"status": "ok", "stage_reached": "second_stage", "reason": None, "ignored": [], "timings_ms": {"total": 1}}
    route = {"strategy": "qilcm", "specialist": None, "confidence": None, "decided_by": "bundle"}
    ranks = list(range(1, length + 1))
    return {"results": results, "ranks": ranks, "scores": [1.0] * length, "route": route, "meta": meta}


def test_two_candidates_are_compared(why):
    against = {"index": 0, "id": "offer-1", "first_stage": [contribution("n5", 1.5, 0.5)], "second_stage": []}
    page, asked = why(explained(against=against))
    page.get_by_role("button", name="Pin it, to compare another with it").click()
    page.get_by_label("Candidate").select_option("0")
    wait_for(page, lambda: len(asked) > 1 and asked[-1].get("against") == 2)
    assert asked[-1]["candidate"] == 0
    page.get_by_role("heading", name="offer-3 compared with offer-1").wait_for()
    page.get_by_role("button", name="Unpin").click()
    wait_for(page, lambda: asked[-1].get("against") is None)


def test_the_first_candidate_has_nobody_above_and_no_moves_are_said(why):
    page, _ = why(explained(passing=None, moves=[], anomaly=None))
    for words in ("Nothing is above it.", "the others keep their order", "The bundle has no anomaly score."):
        page.get_by_text(words).wait_for()


def test_nothing_in_training_range_is_said(why):
    passing = PASSING | {"one": None, "two": None, "tried": 300}
    page, _ = why(explained(passing=passing))
    page.get_by_text("no change of one or two features within training's range is enough").wait_for()


def test_changes_that_were_left_out_are_counted(why):
    page, _ = why(explained(passing=PASSING | {"untried": 1234}))
    page.get_by_text("84 changes tried, 1\u202f234 beyond the limits not").wait_for()


@pytest.mark.parametrize(
    ("margin", "rule"),
    [
        (0.0125, "The router takes the most probable specialist if its gain is above 0.0125."),
        (None, "This bundle's router never takes a specialist."),
    ],
)
def test_what_the_router_made_of_the_list_is_shown(why, margin, rule):
    router = {"probabilities": [0.25, 0.625, 0.125], "gains": [-0.01, 0.02, 0.0], "margin": margin}
    page, _ = why(explained(router=router))
    page.get_by_text(rule).wait_for()
    table = page.get_by_role("region", name="Specialists, as the router sees them")
    rows = [row.inner_text().split("\t") for row in table.get_by_role("row").all()[1:]]
    assert rows == [["0", "0.25", "\u22120.01"], ["1 (most probable)", "0.625", "+0.02"], ["2", "0.125", "0"]]


def test_what_was_cut_off_is_named(why):
    late = ["second_stage", "moves", "passing"]
    page, _ = why(explained(second_stage=None, passing=None, moves=[], incomplete=late))
    page.get_by_text("was over: second stage, moves, passing").wait_for()
    assert text_of(page).count("The time was over before") == 3
    assert "Nothing is above it" not in text_of(page)
    assert "keep their order" not in text_of(page)


def test_a_part_that_failed_is_told_from_one_that_came_too_late(why):
    faults = {"second_stage": "<b>no oil</b>"}
    page, _ = why(explained(second_stage=None, moves=[], incomplete=["second_stage", "moves"], faults=faults))
    page.get_by_text("Failed: second stage (<b>no oil</b>)").wait_for()
    page.get_by_text("was over: moves is not complete").wait_for()
    said = text_of(page)
    assert "It failed: <b>no oil</b>" in said
    assert said.count("The time was over before") == 1


def test_an_answer_without_any_explanation_says_so(why):
    answer = explained(meta={"incomplete": ["explanations"]}) | {"explanations": []}
    page, _ = why(answer)
    page.get_by_text("was over before anything was explained").wait_for()


def test_a_spent_budget_and_a_degraded_ranking_are_said(why):
    stage = json.loads(json.dumps(explained()["explanations"][0]["second_stage"])) | {"budget_spent": True}
    degraded = {"status": "degraded", "stage_reached": "first_stage", "reason": "the second stage would be late"}
    page, _ = why(explained(second_stage=stage, ranking=degraded))
    page.get_by_text("Sampling stopped before its errors were small").wait_for()
    page.get_by_text("the second stage would be late").wait_for()


def problem(status, kind, title, detail):
    return {
        "type": f"urn:listwright:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "request_id": "r-1",
        "errors": [],
    }


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (429, "overloaded", "Refused: too many requests (429)"),
        (504, "degraded", "Nothing could be explained (504)"),
        (422, "invalid-request", "No explanation: Title (422)"),
    ],
)
def test_a_refusal_is_shown_and_can_be_tried_again(why, status, kind, says):
    page, asked = why(problem(status, kind, "Title", "told why"), status=status, headers={"Retry-After": "2"})
    said = page.get_by_role("alert").inner_text()
    assert says in said
    assert "told why Ask again in 2 s." in said
    page.get_by_role("button", name="Ask again").click()
    wait_for(page, lambda: len(asked) == 2)


def test_where_explanations_are_off_the_setting_is_named(demo, open_page):
    page = open_page(demo)
    page.route("**/explain", lambda route: route.fulfill(status=404, json=problem(404, "not-found", "Not Found", "no")))
    ranked(page)
    show(page, "Why")
    page.get_by_text("Explanations are off.").wait_for()
    assert "LISTWRIGHT_EXPLAIN=true" in text_of(page)


def test_the_service_itself_explains(open_page, explaining):
    page = open_page(explaining)
    ranked(page)
    select(page, "offer-3")
    page.get_by_role("button", name="Why this place?").click()
    page.get_by_text("offer-3 is number").wait_for()
    said = text_of(page)
    for words in ("First stage: lightgbm", "exact", "of training's queries"):
        assert words in said, words


def test_a_second_stage_that_fails_is_said_to_have_failed(serve, tmp_path, open_page):
    """It sees five candidates. Without one of them it sees the sixth, too, whose price it gives NaN for."""
    bundle = make_bundle(tmp_path / "shop" / "1", graph="nan", cutoff=5)
    service = serve(bundle=bundle, ui="true", explain="true", explain_timeout_ms=1000 * NEVER_S, keep_alive_s=NEVER_S)
    page = open_page(service)
    ranked(page)
    paste(page, LAST_TOO_DEAR)
    until(lambda: len(ranked(page)) == 6)
    assert ranked(page)[-1] == "candidate 6"
    assert "Degraded" not in text_of(page)
    page.get_by_role("button", name="Why this place?").click()
    page.get_by_text("Failed: moves (").wait_for()
    assert "It failed:" in text_of(page)
    assert "LISTWRIGHT_EXPLAIN_TIMEOUT_MS" not in text_of(page)
