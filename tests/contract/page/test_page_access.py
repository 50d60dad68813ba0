"""Who gets the page: nobody where it is off, everybody its code where it is on, and its data those with a key."""

from pathlib import Path

import httpx
import pytest

from listwright.service.settings import Settings
from listwright.service.ui import routes
from support.pages.page_actions import ranked, text_of
from support.service.asgi import serving
from support.waiting import NEVER_S, until

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "models" / "demo" / "1"
KEY = "web-key-0123456789"


def test_it_is_off_unless_set(bundle_folder):
    assert Settings(bundle=bundle_folder).ui is False
    with serving(bundle_folder) as client:
        for path in ("/ui", "/ui/", "/ui/main.js", "/ui/bundle", "/ui/report"):
            assert client.get(path).status_code == 404, path


def test_what_is_served_below_it(bundle_folder):
    with serving(bundle_folder, ui=True) as client:
        assert client.get("/ui").headers["location"] == "ui/"
        page = client.get("/ui/")
        assert page.headers["content-security-policy"] == routes.POLICY
        again = client.get("/ui/", headers={"If-None-Match": page.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for path, media_type in {
            "main.js": "text/javascript",
            "styles/base.css": "text/css",
            "icon.svg": "image/svg+xml",
        }.items():
            assert client.get(f"/ui/{path}").headers["content-type"].partition(";")[0] == media_type
        missing = client.get("/ui/nothing.js")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
        shown = client.get("/ui/bundle").json()
        assert (shown["model"], shown["version"]) == ("shop", "7")
        assert client.get("/ui/bundle", params={"model": "other"}).status_code == 404
        assert client.get("/ui/report").status_code == 404, "this bundle has none"


def test_a_report_that_is_altered_is_not_served(tmp_path):
    folder = tmp_path / "demo" / "1"
    folder.mkdir(parents=True)
    for path in DEMO.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with serving(folder, ui=True) as client:
        assert client.get("/ui/report").headers["content-security-policy"].startswith("sandbox;")
        (folder / "report.html").write_text("<script>alert(1)</script>")
        refused = client.get("/ui/report")
        assert refused.status_code == 503
        assert "report.html: has 25 bytes instead of" in refused.json()["detail"]
        assert str(tmp_path) not in refused.text


def test_its_requests_are_counted_under_one_path(bundle_folder):
    with serving(bundle_folder, ui=True) as client:
        for name in ("main.js", "app.js", "nothing.js"):
            client.get(f"/ui/{name}")
        text = client.get("/metrics").text
    assert 'listwright_requests_total{path="/ui/{name}",status="200"} 2.0' in text.replace("{name:path}", "{name}")
    assert "main.js" not in text


def test_where_keys_are_set_the_code_is_open_and_the_data_are_not(bundle_folder):
    with serving(bundle_folder, ui=True, keys=f"web:{KEY}") as client:
        for path in ("/ui", "/ui/", *(f"/ui/{name}" for name in routes.read_files())):
            assert client.get(path).status_code in (200, 307), path
        for path in ("/ui/bundle", "/ui/report", "/ui/nothing.js", "/ui/bundle/", "/info", "/metrics"):
            assert client.get(path).status_code == 401, path
        assert client.get("/ui/bundle", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200


def test_the_root_leads_to_the_page_where_it_is_on(bundle_folder):
    with serving(bundle_folder, ui=True, keys=f"web:{KEY}") as client:
        led = client.get("/", follow_redirects=False)
        assert (led.status_code, str(led.next_request.url.path)) == (307, "/ui/")
    with serving(bundle_folder) as client:
        assert client.get("/").status_code == 404


@pytest.mark.nightly
def test_over_a_port_a_file_may_be_kept_and_nothing_else(serve, bundle_folder):
    service = serve(bundle=bundle_folder, ui="true", keys=f"web:{KEY}")
    with httpx.Client(base_url=service.url) as client:
        for _ in range(2):  # on one connection
            assert client.get("/ui/").headers.get_list("cache-control") == ["no-cache"]
            for path in ("/ui/bundle", "/ui/nothing.js", "/info"):
                assert client.get(path).headers.get_list("cache-control") == ["no-store"], path
            assert client.get("/ui/main.js").headers["x-content-type-options"] == "nosniff"


@pytest.mark.nightly
def test_the_page_asks_for_the_key_and_keeps_it_for_the_tab(serve, bundle_folder, open_page):
    service = serve(bundle=bundle_folder, ui="true", keys=f"web:{KEY}", queue_ms=1000 * NEVER_S)
    page = open_page(service)
    page.get_by_label("Key").fill("wrong-key-0123456789")
    page.keyboard.press("Enter")
    page.get_by_text("The key was not taken").wait_for()
    page.get_by_label("Key").fill(KEY)
    page.keyboard.press("Enter")
    assert ranked(page)
    assert page.evaluate("[sessionStorage.length, localStorage.length]") == [1, 0]
    page.reload()
    assert ranked(page)
    page.get_by_role("button", name="Forget the key").click()
    page.get_by_text("This service wants a key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    assert "The key was not taken" not in text_of(page)


@pytest.mark.nightly
def test_a_key_that_is_removed_is_asked_for_again(serve, bundle_folder, tmp_path, open_page):
    keys = tmp_path / "keys"
    keys.write_text(f"web:{KEY}\n")
    service = serve(bundle=bundle_folder, ui="true", keys_file=keys, queue_ms=1000 * NEVER_S)
    page = open_page(service)
    page.get_by_label("Key").fill(KEY)
    page.keyboard.press("Enter")
    assert ranked(page)
    keys.write_text("web:another-key-0123456789\n")
    until(lambda: httpx.get(service.url + "/info", headers={"Authorization": f"Bearer {KEY}"}).status_code == 401)
    page.get_by_label("stars", exact=True).fill("2")
    page.get_by_text("The key was not taken").wait_for()


@pytest.mark.nightly
def test_the_policy_stops_what_is_inline(demo, open_page, browser):
    """The probe: a style or a handler that got into the document after all would not run."""
    with browser.new_context() as context:
        page, said = context.new_page(), []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"{demo.url}/ui/")
        ranked(page)
        outcome = page.evaluate(
            """() => {
                try { document.body.innerHTML = "<img src=x onerror=hacked=1>"; } catch (error) { return error.name; }
            }"""
        )
        assert outcome == "TypeError", "no text becomes HTML"
        outcome = page.evaluate(
            """() => {
                document.body.setAttribute("style", "color: rgb(1, 2, 3)");
                try { document.body.setAttribute("onclick", "hacked = 1"); } catch (error) { return error.name; }
            }"""
        )
        assert outcome == "TypeError", "nor a script"
        until(lambda: any("Content Security Policy" in text for text in said))
        assert page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
        assert page.evaluate("window.hacked") is None


@pytest.mark.nightly
def test_nothing_is_asked_of_another_host(demo, browser):
    with browser.new_context() as context:
        page, asked = context.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{demo.url}/ui/")
        ranked(page)
        for tab in ("Why", "Models", "Live"):
            page.get_by_role("tab", name=tab).click()
            page.wait_for_load_state("networkidle") if tab != "Live" else page.locator(".tiles").wait_for()
    assert asked
    assert {httpx.URL(url).netloc for url in asked} == {httpx.URL(demo.url).netloc}
