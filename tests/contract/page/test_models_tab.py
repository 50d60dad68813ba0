"""Models: what is served and how good it is; reload and rollback with the admin key, asked for twice."""

import json
from pathlib import Path

import httpx
import pytest

from listwright.service.bundles import folder
from support.http.rerank_requests import by_name
from support.pages.page_actions import hold, paste, ranked, show, text_of, wait_for
from support.waiting import NEVER_S, until

pytestmark = pytest.mark.nightly

KEY = "0123456789abcdef"


@pytest.fixture
def shop(serve, models):
    return serve(models=models, ui="true", admin_key=KEY, poll_s=0, queue_ms=1000 * NEVER_S)


def confirm(page, first, second):
    """Give the key twice."""
    page.get_by_label("Admin key", exact=True).fill(first)
    page.get_by_role("button", name="Go on").click()
    page.get_by_label("Admin key, again").fill(second)
    page.keyboard.press("Enter")


def served(service):
    return [(one["model"], one["version"]) for one in httpx.get(service.url + "/info").json()["models"]]


def test_the_held_out_table_stands_there(demo, open_page):
    page = open_page(demo, "#tab=models")
    page.get_by_role("heading", name="Held-out result on 300 queries").wait_for()
    row = page.get_by_role("row").filter(has_text="(auto)")
    report = json.loads(Path("models/demo/1/report.json").read_text())
    held_out = {
        one["name"]: one for one in report["metrics"] if one["ranker"] == report["default_strategy"]["strategy"]
    }
    found = held_out["ndcg@10"]
    assert f"{found['mean']:.3f} {found['low']:.3f}–{found['high']:.3f}" in " ".join(row.inner_text().split())
    page.get_by_label("Drawn").select_option("mrr")
    until(lambda: f"{held_out['mrr']['mean']:.3f}" in page.locator(".intervals").inner_text())
    assert "From report.json" in text_of(page) or "from report.json" in text_of(page)


def test_the_report_opens_and_runs_nothing(demo, open_page):
    page = open_page(demo, "#tab=models")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="The report of its fit").click()
    report = opened.value
    report.wait_for_load_state()
    assert "demo/1, held-out result" in report.title()
    policy = httpx.get(report.url).headers["content-security-policy"]
    assert policy.startswith("sandbox; default-src 'none'")


def test_a_reload_then_a_rollback(shop, models, open_page):
    folder.point(models, "shop", "2")
    page = open_page(shop, "#tab=models")
    page.get_by_role("button", name="Reload").click()
    confirm(page, KEY, KEY)
    page.get_by_text("This worker serves shop/2.").wait_for()
    assert focused(page) == "Reload", "focus is where it was before the dialog"
    assert served(shop) == [("shop", "2")]
    assert "shop/2" in page.locator("header").inner_text()
    page.get_by_role("button", name="Roll back shop to 1").click()
    confirm(page, KEY, KEY)
    page.get_by_text("This worker serves shop/1.").wait_for()
    assert served(shop) == [("shop", "1")]
    show(page, "Try")
    assert ranked(page)


def focused(page):
    return page.evaluate("document.activeElement.textContent.trim()")


def test_the_second_step_is_said_and_focus_stays_in_the_dialog(shop, models, open_page):
    folder.point(models, "shop", "2")
    page, held = open_page(shop, "#tab=models"), []
    page.route("**/admin/reload", lambda route: hold(route, held), times=1)
    page.get_by_role("button", name="Reload").click()
    dialog = page.get_by_role("dialog")
    assert "This changes what every caller gets." in dialog.get_by_role("status").inner_text()
    page.get_by_label("Admin key", exact=True).fill(KEY)
    page.get_by_role("button", name="Go on").click()
    until(lambda: "Are you sure?" in dialog.get_by_role("status").inner_text())
    until(lambda: page.evaluate("document.activeElement.id") == "admin-key")
    page.keyboard.type(KEY)
    page.keyboard.press("Enter")
    wait_for(page, lambda: held)
    until(lambda: "The service is asked" in dialog.get_by_role("status").inner_text())
    assert page.evaluate("document.activeElement.id") == "admin-key"
    page.keyboard.press("Enter")
    held[0].continue_()
    page.get_by_text("This worker serves shop/2.").wait_for()
    assert len(held) == 1, "it is asked for once"


def test_a_refusal_that_comes_after_the_dialog_was_left_is_shown(shop, open_page):
    page, held = open_page(shop, "#tab=models"), []
    page.route("**/admin/reload", lambda route: hold(route, held), times=1)
    page.get_by_role("button", name="Reload").click()
    confirm(page, "x" * 16, "x" * 16)
    wait_for(page, lambda: held)
    page.keyboard.press("Escape")
    until(lambda: page.get_by_role("dialog").count() == 0)
    held[0].continue_()
    page.get_by_text("Nothing was changed: Unauthorized (401)").wait_for()


def test_two_keys_that_differ_or_a_wrong_one_change_nothing(shop, models, open_page):
    folder.point(models, "shop", "2")
    page = open_page(shop, "#tab=models")
    page.get_by_role("button", name="Reload").click()
    confirm(page, KEY, KEY + "x")
    page.get_by_text("The two keys differ. Nothing was changed.").wait_for()
    confirm(page, "x" * 16, "x" * 16)
    page.get_by_text("Nothing was changed: Unauthorized (401)").wait_for()
    assert served(shop) == [("shop", "1")]
    page.keyboard.press("Escape")
    until(lambda: page.get_by_role("dialog").count() == 0)
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [0, 0], "the key is kept nowhere"


def test_a_refused_bundle_is_named_with_its_reason(shop, models, open_page):
    (models / "shop" / "2" / "golden.jsonl").write_text("{}\n")
    folder.point(models, "shop", "2")
    page = open_page(shop, "#tab=models")
    page.get_by_text("The last reload refused nothing.").wait_for()
    page.get_by_role("button", name="Reload").click()
    confirm(page, KEY, KEY)
    assert "Conflict (409)" in page.get_by_role("dialog").get_by_role("alert").inner_text()
    page.keyboard.press("Escape")
    page.get_by_text("Refused by the last reload").wait_for()
    said = text_of(page)
    assert "shop/2" in said
    assert "golden.jsonl" in said
    assert str(models) not in said


def test_without_an_admin_key_the_setting_is_named(demo, open_page):
    page = open_page(demo, "#tab=models")
    page.get_by_text("No version is kept").wait_for()
    page.get_by_role("button", name="Reload").click()
    confirm(page, KEY, KEY)
    page.get_by_text("The service takes no admin key").wait_for()
    assert "LISTWRIGHT_ADMIN_KEY" in page.get_by_role("dialog").inner_text()


def test_a_kept_version_can_be_looked_at(shop, models, open_page):
    folder.point(models, "shop", "2")
    headers = {"Authorization": f"Bearer {KEY}"}
    assert httpx.post(shop.url + "/admin/reload", headers=headers).status_code == 200
    page = open_page(shop)
    ranked(page)
    paste(page, by_name())
    for chosen, version in (("0", "2"), ("1", "1"), ("0", "2")):
        page.get_by_label("Bundle", exact=True).select_option(chosen)
        answer = httpx.post(shop.url + "/rerank", json=by_name(version=version)).json()
        assert answer["version"] == version
        until(lambda answer=answer: ranked(page) == [one["id"] for one in answer["results"]])
    orders = [httpx.post(shop.url + "/rerank", json=by_name(version=v)).json()["ranks"] for v in "12"]
    assert orders[0] != orders[1]
