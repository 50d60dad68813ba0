"""With keys set: who comes in, what those are told who do not, and what is counted and logged."""

import asyncio
import json
import logging
import re
import socket

import httpx
import pytest

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.paths import HEALTH, INFORMATION
from listwright.service.settings import Settings
from support.http.processes import Process
from support.http.raw_http import BODY as ASKED
from support.http.raw_http import answer as heard
from support.http.raw_http import request
from support.service.asgi import serving
from support.service.swapping import BODY
from support.waiting import PATIENCE_S, until

WEB, BATCH, ADMIN = "w" * 20, "b" * 20, "a" * 20
KEYS = f"web:{WEB},batch:{BATCH} rate=0.001 burst=2"


def with_key(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def guarded(bundle_folder):
    return lambda **settings: serving(bundle_folder, **({"keys": KEYS} | settings))


WRONG = {
    "none": {},
    "empty": with_key(""),
    "wrong": with_key("x" * 20),
    "a part": with_key(WEB[:-1]),
    "two in one": with_key(f"{WEB} {BATCH}"),
    "the admin's": with_key(ADMIN),
    "another scheme": {"Authorization": f"Basic {WEB}"},
    "another header": {"X-API-Key": WEB},
    "the name": with_key("web"),
    "name and key": with_key(f"web:{WEB}"),
    "not ASCII": {"Authorization": b"Bearer \xff\x00"},
}


def test_whatever_is_wrong_the_answer_is_the_same(guarded):
    answers = set()
    with guarded(admin_key=ADMIN) as client:
        for headers in WRONG.values():
            response = client.post("/rerank", json=BODY, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["content-type"] == "application/problem+json"
            problem = response.json()
            assert problem.pop("request_id") == response.headers["x-request-id"]
            assert problem["type"] == "urn:listwright:unauthorized"
            answers.add(json.dumps(problem))
    assert len(answers) == 1, "which part was wrong is not said"


def test_every_path_but_health_and_admin_needs_a_key(guarded):
    with guarded() as client:
        for path in HEALTH:
            assert client.get(path).status_code == 200
        for path in (*INFORMATION, "/v2", "/v2/models/shop", "/nope", "//livez", "/livez/", "/LIVEZ", "/%61dmin"):
            assert client.get(path).status_code == 401, path
        for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/v2/models/shop/infer", "/livez/../rerank"):
            assert client.post(path, json=BODY).status_code in (401, 405), path
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            assert client.post(path, json=BODY, headers=with_key(WEB)).status_code == 200


def test_information_is_open_where_the_settings_say_so(guarded):
    with guarded(open_info=True) as client:
        for path in INFORMATION:
            assert client.get(path).status_code == 200
        assert client.get("/v2/models/shop").status_code == 401
        assert client.post("/rerank", json=BODY).status_code == 401


def test_one_key_is_not_the_other(guarded):
    """The admin's opens no rankings (above), and no other opens what is the admin's."""
    with guarded(admin_key=ADMIN) as client:
        assert client.post("/admin/reload", headers=with_key(WEB)).status_code == 401
        assert client.post("/admin/reload", headers=with_key(ADMIN)).status_code == 409


def test_without_keys_everything_is_open(guarded):
    with guarded(keys=None) as client:
        assert client.post("/rerank", json=BODY).status_code == 200
        assert client.post("/rerank", json=BODY, headers=with_key("whatever")).status_code == 200


def test_more_than_the_rate_gets_429_and_others_do_not(guarded):
    with guarded() as client:
        for _ in range(2):
            assert client.post("/rerank", json=BODY, headers=with_key(BATCH)).status_code == 200
        refused = client.post("/rerank", json=BODY, headers=with_key(BATCH))
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:listwright:rate-limited")
        assert 990 < int(refused.headers["retry-after"]) <= 1000
        assert client.get("/livez").status_code == 200
        for _ in range(5):
            assert client.post("/rerank", json=BODY, headers=with_key(WEB)).status_code == 200
        client.post("/rerank", json=BODY)
        text = client.get("/metrics", headers=with_key(WEB)).text
    counted = set(re.findall(r"listwright_key_requests_total\{(.*)\} (\S+)", text))
    assert counted == {
        ('key="batch",outcome="admitted"', "2.0"),
        ('key="batch",outcome="rate_limited"', "1.0"),
        ('key="web",outcome="admitted"', "6.0"),
        ('key="",outcome="unauthorized"', "1.0"),
    }
    assert 'listwright_requests_total{path="/rerank",status="401"} 1.0' in text
    assert 'listwright_requests_total{path="/rerank",status="429"} 1.0' in text


@pytest.mark.parametrize("key", [None, BATCH], ids=["no key", "over the rate"])
def test_the_body_is_never_asked_for(bundle_folder, key):
    settings = Settings(bundle=bundle_folder, keys=f"batch:{BATCH} rate=0.001 burst=1")
    app = create_app(settings, models=bundle.load(bundle_folder))
    headers = [(b"content-type", b"application/json")]
    if key is not None:
        headers.append((b"authorization", f"Bearer {key}".encode()))

    async def receive():
        raise AssertionError("somebody read the body")

    async def ask(path, method):
        said = []

        async def send(message):
            said.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "scheme": "http",
            "root_path": "",
            "http_version": "1.1",
            "server": ("x", 80),
        }
        await app(scope, receive, send)
        return said[0]["status"]

    async def scenario():
        async with app.router.lifespan_context(app):
            if key is not None:
                await ask("/v2", "GET")
            return await ask("/rerank", "POST")

    assert asyncio.run(scenario()) == (401 if key is None else 429)


def test_the_log_names_the_holder_and_never_the_key(guarded, caplog):
    caplog.set_level(logging.DEBUG)
    with guarded(admin_key=ADMIN) as client:
        client.post("/rerank", json=BODY, headers=with_key(WEB))
        client.post("/rerank", json=BODY, headers=with_key("x" * 20))
        client.post("/admin/reload", headers=with_key(ADMIN))
    lines = [record.facts for record in caplog.records if record.name == "listwright.requests"]
    assert [line.get("key") for line in lines] == ["web", None, None]
    everything = " ".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    for secret in (WEB, ADMIN, "x" * 20):
        assert secret not in everything


@pytest.fixture(scope="module")
def locked(bundle_folder, tmp_path_factory):
    """A live service with a file of keys."""
    file = tmp_path_factory.mktemp("secret") / "keys"
    file.write_text(f"web:{WEB}\n")
    service = Process(bundle=bundle_folder, keys_file=file, log_level="debug").wait_until_ready()
    yield service, file
    code, log = service.stop()
    assert code == 0
    for secret in (WEB, BATCH):
        assert secret not in log


def test_keys_are_changed_without_a_restart(locked):
    service, file = locked
    with httpx.Client(base_url=service.url) as client:
        assert client.post("/rerank", json=BODY, headers=with_key(WEB)).status_code == 200
        assert client.post("/rerank", json=BODY, headers=with_key(BATCH)).status_code == 401
        for now, before in ((BATCH, WEB), (WEB, BATCH)):  # and back again: other tests use this service
            file.write_text(f"web:{now}\n")
            until(lambda key=now: client.post("/rerank", json=BODY, headers=with_key(key)).status_code == 200)
            assert client.post("/rerank", json=BODY, headers=with_key(before)).status_code == 401


def test_without_a_key_the_answer_comes_before_the_body(locked):
    """Over a real connection: a body is announced, and not a byte of it sent."""
    service, _ = locked
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request(b"Expect: 100-continue"))
        status, _, body = heard(connection)
        assert (status, json.loads(body)["type"]) == (401, "urn:listwright:unauthorized")


def test_every_answer_has_the_headers(locked):
    service, _ = locked
    asked = {
        "200": request(b"Authorization: Bearer " + WEB.encode()) + ASKED,
        "401": request(),
        "404": b"GET /nope HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + WEB.encode() + b"\r\n\r\n",
        "400": b"nonsense\r\n\r\n",
        "431": b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000,
    }
    url = httpx.URL(service.url)
    for name, sent in asked.items():
        with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
            connection.sendall(sent)
            if name == "431":
                connection.sendall(b"x" * 40_000)
            status, headers, _ = heard(connection)
        assert str(status) == name
        assert headers["x-content-type-options"] == "nosniff", name
        assert headers["cache-control"] == "no-store", name
        assert "server" not in headers, name


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"keys": "web:SECRET"}, "error: LISTWRIGHT_KEYS: line 1 is not NAME:KEY"),
        ({"rules": "no/such/file"}, "error: LISTWRIGHT_RULES: no/such/file is not there"),
        ({"keys_file": "no/such/file"}, "error: LISTWRIGHT_KEYS_FILE: no/such/file cannot be read: No such file"),
        ({"keys": f"web:{ADMIN}", "admin_key": ADMIN}, "error: LISTWRIGHT_ADMIN_KEY and web have the same key"),
        ({"admin_key": "SECRET"}, "error: LISTWRIGHT_ADMIN_KEY: "),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_wrong_keys_end_the_start_with_2(bundle_folder, try_to_start, settings, says, workers):
    code, log = try_to_start(bundle=bundle_folder, workers=workers, **settings)
    assert code == 2
    assert log.startswith(says)
    assert "SECRET" not in log
    assert ADMIN not in log
