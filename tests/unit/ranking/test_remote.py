"""What stores may send and where they may lead: redirects, listings and files without end, credentials, errors."""

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from listwright.ranking import remote
from listwright.ranking.errors import ListwrightError
from listwright.ranking.remote import Store, StoreError, Url
from support.object_store import S3

SECRETS = ("session-token", "hf_secret", "Signature", "Bearer", "SharedKey")


@contextmanager
def http_server(answer):
    """A server whose answers a function of the handler writes; yields its address and the requests so far."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append((self.path, str(self.headers)))
            with suppress(OSError):  # of a client that has heard enough
                answer(self)

        do_PUT = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", requests
    server.shutdown()
    server.server_close()


def send(handler, content=b"", status=200, **headers):
    handler.send_response(status)
    for name, value in {
        "Content-Length": len(content),
        "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT",
        "ETag": '"1"',
    }.items():
        handler.send_header(name, value)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(content)


def point_to(monkeypatch, address):
    """Let all stores be at an address, with credentials."""
    for name, value in {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "session-token",
        "AZURE_STORAGE_ENDPOINT": f"{address}/account",
        "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
        "HF_ENDPOINT": address,
        "HF_TOKEN": "hf_secret",
    }.items():
        monkeypatch.setenv(name, value)


STORES = ("s3://models/live", "az://account/models/live", "hf://owner/rankers/live")


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize("operation", ["list", "small", "large", "write"])
def test_credentials_go_to_the_first_server_alone(url, operation, monkeypatch):
    if url.startswith("hf:") and operation in ("list", "write"):
        pytest.skip("hf:// is neither listed nor written")
    calls = {
        "list": Store.list_names,
        "small": lambda store: store.read_small("CURRENT", 100),
        "large": lambda store: list(store.stream("first_stage.txt")),
        "write": lambda store: store.write("CURRENT", b"1"),
    }
    with http_server(lambda handler: send(handler, status=302, Location=handler.path + "x")) as (other, seen):
        with http_server(lambda handler: send(handler, status=302, Location=f"{other}/x")) as (first, asked):
            point_to(monkeypatch, first)
            with pytest.raises(StoreError, match="redirects to another server|answers 302"):
                calls[operation](Store(Url(url)))
    assert any(secret in headers for _, headers in asked for secret in SECRETS)
    assert not [headers for _, headers in seen for secret in SECRETS if secret in headers]
    assert len(seen) == (1 if url.startswith("hf:") else 0)


@pytest.mark.parametrize(
    ("url", "servers", "others"),
    [
        ("s3://models/live", [("169.254.169.254", 80), ("sts.eu-west-1.amazonaws.com", 443)], [("sts.evil.com", 443)]),
        ("gs://models/live", [("metadata.google.internal", 80)], [("metadata.google.internal.evil.com", 80)]),
        ("az://account/models/live", [("login.microsoftonline.com", 443), ("tokens", 8080)], [("tokens", 443)]),
    ],
)
def test_the_first_server_that_gives_no_credentials_is_the_store(url, servers, others, monkeypatch):
    monkeypatch.setenv("IDENTITY_ENDPOINT", "http://tokens:8080/msi")
    client = Store(Url(url))._small
    for place in [*servers, ("store", 443), *servers, ("store", 443)]:
        assert client.admits(place)
    for place in [*others, ("store", 8443), ("other", 443)]:
        assert not client.admits(place)


def pages_without_end(handler):
    names = "".join(f"<CommonPrefixes><Prefix>live/m{i}/</Prefix></CommonPrefixes>" for i in range(1000))
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    send(handler, f"<ListBucketResult>{more}{names}</ListBucketResult>".encode())


def page_without_end(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(b"<ListBucketResult>")
    while True:
        handler.wfile.write(b"<CommonPrefixes><Prefix>live/m/</Prefix></CommonPrefixes>" * 1000)


def error_without_end(handler):
    handler.send_response(500)
    handler.end_headers()
    while True:
        handler.wfile.write(b"wrong " * 10_000)


@pytest.mark.parametrize("answer", [pages_without_end, page_without_end, error_without_end])
def test_an_answer_without_end_is_broken_off_and_a_good_one_is_read_again(answer, monkeypatch):
    monkeypatch.setattr(remote, "MOST_BYTES", 2**20)
    good = [False]

    def answer_or_recover(handler):
        send(handler, LISTING) if good[0] else answer(handler)

    with http_server(answer_or_recover) as (address, requests):
        point_to(monkeypatch, address)
        store = Store(Url("s3://models/live"))
        with pytest.raises(StoreError, match="too long"):
            store.list_names()
        assert len(requests) < 40
        with pytest.raises(StoreError):
            store.read_small("CURRENT", 100) if answer is error_without_end else store.list_names()
        good[0] = True
        assert store.list_names() == ["m1", "m2"]


LISTING = b"<ListBucketResult>%s</ListBucketResult>" % b"".join(
    b"<CommonPrefixes><Prefix>live/m%d/</Prefix></CommonPrefixes>" % i for i in (1, 2)
)


@pytest.mark.parametrize(("most", "names"), [(2, ["m1", "m2"]), (1, None)])
def test_names_have_a_limit(most, names, monkeypatch):
    monkeypatch.setattr(remote, "MOST_NAMES", most)
    with http_server(lambda handler: send(handler, LISTING)) as (address, _):
        point_to(monkeypatch, address)
        if names is not None:
            assert Store(Url("s3://models/live")).list_names() == names
            return
        with pytest.raises(StoreError, match="2 folders; the limit is 1"):
            Store(Url("s3://models/live")).list_names()


@pytest.mark.parametrize(("size", "fault"), [(99, ""), (100, ""), (101, "has 101 bytes; the limit is 100")])
def test_a_small_file_has_a_limit(size, fault, monkeypatch):
    with http_server(lambda handler: send(handler, bytes(size))) as (address, _):
        point_to(monkeypatch, address)
        for url in STORES:
            file = Store(Url(url)).read_small("CURRENT", 100)
            assert (len(file.content), file.fault) == (0 if fault else size, fault)
