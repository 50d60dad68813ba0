"""Why: questions that nobody waits for any more end, and hold no place in the service."""

import pytest

from support.pages.explained import explained
from support.pages.page_actions import ranked, show, wait_for

pytestmark = pytest.mark.nightly


def test_who_asks_anew_or_leaves_ends_what_was_asked(why):
    page, asked = why()
    page.get_by_text("offer-3 is number 2 of 5.").wait_for()
    gone = []
    page.on("requestfailed", lambda request: gone.append(request.post_data_json["candidate"]))
    page.unroute("**/explain")
    page.route("**/explain", lambda route: asked.append(route.request.post_data_json))  # and never answers
    page.get_by_label("Candidate").select_option("0")
    wait_for(page, lambda: asked[-1]["candidate"] == 0)
    page.get_by_label("Candidate").select_option("1")
    wait_for(page, lambda: asked[-1]["candidate"] == 1 and gone == [0])
    show(page, "Try")
    wait_for(page, lambda: gone == [0, 1])
    assert page.get_by_role("alert").count() == 0


def test_the_service_is_never_too_busy_for_who_goes_from_one_to_the_next(open_page, explaining):
    """It explains one list and lets one wait; who has left holds neither place."""
    page = open_page(explaining)
    names = ranked(page)
    for _ in range(2):
        show(page, "Why")
        for index in range(len(names)):
            page.get_by_label("Candidate").select_option(str(index))
            page.wait_for_timeout(30)
        show(page, "Try")
    show(page, "Why")
    page.get_by_text(f"offer-{len(names)} is number").wait_for()
    assert page.get_by_role("alert").count() == 0


def test_a_refusal_that_comes_from_a_question_that_was_given_up_is_asked_again(why):
    page, _ = why()
    page.get_by_text("offer-3 is number 2 of 5.").wait_for()
    page.unroute("**/explain")
    answers = []

    def busy_twice(route):
        answers.append(route.request.post_data_json["candidate"])
        if answers[-1] == 0:
            return  # never answered
        if len(answers) < 4:
            refusal = {"status": 429, "title": "busy", "type": "urn:listwright:problem:overloaded"}
            route.fulfill(status=429, json=refusal, headers={"Retry-After": "1"})
        else:
            route.fulfill(json=explained())

    page.route("**/explain", busy_twice)
    page.get_by_label("Candidate").select_option("0")
    wait_for(page, lambda: answers == [0])
    page.get_by_label("Candidate").select_option("1")
    wait_for(page, lambda: answers == [0, 1, 1, 1])
    assert page.get_by_role("alert").count() == 0
