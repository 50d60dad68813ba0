"""What a call says: fields, headers, address."""

import asyncio
import traceback

import httpx
import numpy as np
import pytest

from listwright_client import AsyncClient, Client, RequestError
from support.http.scripted import URL, good, refusing

MATRIX = np.ones((2, 3))


def test_only_what_is_given_is_sent(client, server):
    server.says(good(), good(id="q"), good())
    client.rerank(MATRIX)
    client.rerank(MATRIX, strategy="srm", specialist=0, raw_scores=False, top_n=None, model="shop", id="q")
    client.rerank(MATRIX, context={}, version="7", timeout_ms=None)
    client.rerank(MATRIX, probabilities=True, min_probability=np.float32(0.1), weights={"booked": 1, "margin": 0.5})
    client.rerank(MATRIX, probabilities=False, min_probability=None, weights=None)
    features = MATRIX.tolist()
    assert server.bodies() == [
        {"features": features},
        {"features": features, "strategy": "srm", "specialist": 0, "raw_scores": False, "model": "shop", "id": "q"},
        {"features": features, "context": {}, "version": "7"},
        {
            "features": features,
            "probabilities": True,
            "min_probability": 0.1,
            "weights": {"booked": 1, "margin": 0.5},
        },
        {"features": features, "probabilities": False},
    ]


def test_headers_go_along(make, server):
    client = make(api_key="s3cret")
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    client.rerank(MATRIX, request_id="mine-1", traceparent=trace)
    sent = server.requests[0].headers
    assert (sent["x-request-id"], sent["traceparent"]) == ("mine-1", trace)
    assert sent["authorization"] == "Bearer s3cret"
    assert sent["content-type"] == "application/json"


def test_the_number_of_candidates_goes_along_with_each_attempt(client, server):
    server.says(refusing(503), good(), refusing(422))
    client.rerank(MATRIX)
    for features in (np.ones((3, 1)), [{"price": 1.0}]):
        with pytest.raises(RequestError):
            client.rerank(features)
    with pytest.raises(RequestError):
        client.explain(np.ones((5, 1)), candidate=0)
    sent = [request.headers["listwright-expect-candidates"] for request in server.requests]
    assert sent == ["2", "2", "3", "1", "5"]


def test_who_sends_no_list_sends_no_number(client, server):
    server.says(refusing(400))
    for ask in (client.info, lambda: client.rerank(np.ones((0, 3)))):
        with pytest.raises(RequestError):
            ask()
    assert len(server.requests) == 2
    assert not any("listwright-expect-candidates" in request.headers for request in server.requests)


def test_the_key_is_not_shown():
    settings = Client(URL, api_key="s3cret")._settings
    assert settings.headers({})["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(settings)


def test_every_attempt_carries_the_same_id_which_is_new_for_each_call(client, server):
    server.says(refusing(503), good(), good())
    client.rerank(MATRIX)
    client.rerank(MATRIX)
    first, again, other = (request.headers["x-request-id"] for request in server.requests)
    assert first == again != other
    assert "authorization" not in server.requests[0].headers


def test_a_path_before_the_paths_is_kept(server):
    http = httpx.Client(transport=httpx.MockTransport(server))
    Client(URL + "/ranking/", http=http).rerank(MATRIX)
    assert str(server.requests[0].url) == URL + "/ranking/rerank"


def test_an_httpx_of_ones_own_stays_open(server):
    with httpx.Client(transport=httpx.MockTransport(server)) as http:
        with Client(URL, http=http):
            pass
        assert not http.is_closed
    own = Client(URL)
    own.close()
    with pytest.raises(RuntimeError, match="closed"):
        own.rerank(MATRIX)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"base_url": "service:8000"}, "give an address like"),
        ({"base_url": ""}, "give an address like"),
        ({"base_url": "ftp://service"}, "give an address like"),
        ({"base_url": "127.0.0.1:8000"}, "give an address like"),
        ({"base_url": "//service"}, "give an address like"),
        ({"base_url": "http://"}, "give an address like"),
        ({"base_url": "http://service:99999"}, "give an address like"),
        ({"base_url": "http://service:-1"}, "give an address like"),
        ({"base_url": "http://a..b"}, "give an address like"),
        ({"base_url": "http://service\n"}, "give an address like"),
        ({"base_url": "http://service?model=shop"}, "query"),
        ({"base_url": "http://service/?"}, "query"),
        ({"base_url": "http://service/#x"}, "fragment"),
        ({"base_url": "http://u:p@service", "api_key": "s3cret"}, "give one"),
        ({"base_url": "http://u:two words@service?x"}, "query"),
        ({"base_url": "http://u:two words/@service:x"}, "is no URL"),
        ({"base_url": "u:two words@service"}, "give an address like"),
        ({"api_key": "two words"}, "api_key holds blanks"),
        ({"api_key": ""}, "api_key holds blanks"),
        ({"retries": -1}, "retries is -1"),
        ({"timeout": 0}, "timeout is 0"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_that_cannot_ask_is_not_made(kind, options, says):
    with pytest.raises(ValueError, match=says) as caught:
        kind(**{"base_url": URL, **options})
    assert "two words" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"topn": 3}, TypeError, "rerank has no topn: it takes .*top_n"),
        ({"timeout": 1.0, "deadline": 1001.0}, ValueError, "give a timeout or a deadline"),
        ({"timeout_ms": 0}, ValueError, "timeout_ms is 0"),
        ({"request_id": "a\nb"}, ValueError, "X-Request-ID is"),
        ({"request_id": "x" * 129}, ValueError, "X-Request-ID is"),
        ({"traceparent": "a b"}, ValueError, "traceparent is 'a b'"),
    ],
)
def test_words_that_cannot_be_said_are_refused_before_anything_is_sent(client, server, options, error, says):
    with pytest.raises(error, match=says):
        client.rerank(MATRIX, **options)
    assert server.requests == []


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"])
def test_a_path_of_certificates_that_is_not_there_is_named(kind, name, monkeypatch, tmp_path):
    for other in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, str(tmp_path / "gone" / "x"))
    with pytest.raises(ValueError, match=f"{name} is '.*gone/x'.*: correct or unset it"):
        kind(URL)
    text = tmp_path / "no-certificate"
    text.write_text("no certificate")
    if name != "SSLKEYLOGFILE":
        monkeypatch.setenv(name, str(text))
        with pytest.raises(ValueError, match=f"{name} is '.*no-certificate'"):
            kind(URL)


def test_a_loop_that_runs_keeps_its_async_client():
    async def ask(client):
        return await client.rerank(MATRIX)

    async def ask_elsewhere():
        async with httpx.AsyncClient(transport=httpx.MockTransport(good())) as http:
            client = AsyncClient(URL, http=http)
            await ask(client)
            await asyncio.to_thread(asyncio.run, ask(client))

    with pytest.raises(RuntimeError, match="make one in each loop"):
        asyncio.run(ask_elsewhere())
