"""``POST /ubi/events``: there where it is set, with a key of its own scope, and no word of it elsewhere."""

import json

import pytest

from listwright.ranking.served_log.events import MAX_EVENTS
from listwright.service.wire.examples import EVENTS
from support.service.asgi import serving

PATH = "/ubi/events"
EVENT = EVENTS["click"]["value"][0]
RANKS, POSTS, BOTH = "r" * 20, "e" * 20, "b" * 20
KEYS = f"web:{RANKS},shop:{POSTS} scope=events,all:{BOTH} scope=rank+events"
LIST = {"candidates": [{"features": [1.0, 2.0, 3.0, "A5"]}]}


@pytest.fixture
def client(bundle_folder, tmp_path):
    with serving(bundle_folder, events_log=tmp_path) as client:
        yield client


def logged(folder):
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("name", EVENTS)
def test_documented_events_are_written(client, tmp_path, name):
    sent = EVENTS[name]["value"]
    answer = client.post(PATH, json=sent)
    events = sent if isinstance(sent, list) else [sent]
    assert (answer.status_code, answer.json()) == (202, {"accepted": len(events)})
    assert [{k: v for k, v in event.items() if k != "received_at"} for event in logged(tmp_path)] == events


def test_the_end_finishes_the_file(bundle_folder, tmp_path):
    with serving(bundle_folder, events_log=tmp_path) as client:
        client.post(PATH, json=EVENT)
        assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]


def test_without_the_setting_there_is_nothing(bundle_folder):
    with serving(bundle_folder) as client:
        assert client.post(PATH, json=EVENT).status_code == 404


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[{}]", {"Content-Type": "text/plain"}, 415),
        (b"[{}]", {"Content-Encoding": "gzip"}, 415),
        (json.dumps([EVENT] * (MAX_EVENTS + 1)).encode(), {}, 413),
        (b"[" + b" " * 300_000 + b"]", {}, 413),
        (json.dumps([EVENT, EVENT | {"query_id": 7}]).encode(), {}, 422),
    ],
)
def test_what_is_refused_is_not_written(client, tmp_path, content, headers, status):
    answer = client.post(PATH, content=content, headers={"Content-Type": "application/json"} | headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert list(tmp_path.iterdir()) == []


def test_a_parameter_is_not_dropped(client, tmp_path):
    refused = client.post(f"{PATH}?query_id=q", json=EVENT)
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "?query_id")
    assert logged(tmp_path) == []


def test_a_fault_has_its_path(client):
    answer = client.post(PATH, json=[EVENT, EVENT | {"event_attributes": {"object": {"object_id": []}}}])
    assert [fault["path"] for fault in answer.json()["errors"]] == ["$[1].event_attributes.object.object_id"]
    answer = client.post(PATH, json={**EVENT, "timestamp": "noon"})
    assert [fault["path"] for fault in answer.json()["errors"]] == ["$.timestamp"]


def test_a_folder_that_cannot_be_written_is_a_503(bundle_folder, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with serving(bundle_folder, events_log=tmp_path / "file") as client:
        answer = client.post(PATH, json=EVENT)
        assert answer.status_code == 503
        assert answer.json()["type"] == "urn:listwright:events-not-kept"
        assert int(answer.headers["retry-after"]) >= 1
        assert client.post("/rerank", json=LIST).status_code == 200


@pytest.mark.parametrize(
    ("key", "posts", "ranks"), [(RANKS, 403, 200), (POSTS, 202, 403), (BOTH, 202, 200), ("x" * 20, 401, 401)]
)
def test_a_key_opens_what_its_scope_says(bundle_folder, tmp_path, key, posts, ranks):
    with serving(bundle_folder, events_log=tmp_path, keys=KEYS) as client:
        headers = {"Authorization": f"Bearer {key}"}
        assert client.post(PATH, json=EVENT, headers=headers).status_code == posts
        assert client.post("/rerank", json=LIST, headers=headers).status_code == ranks


def test_many_events_a_second_are_not_paced(client, tmp_path):
    """Other paths that rank nothing are held beyond a rate: 200 at once."""
    for _ in range(400):
        assert client.post(PATH, json=EVENT).status_code == 202
    assert len(logged(tmp_path)) == 400
