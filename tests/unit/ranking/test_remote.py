"""What stores may send and where they may lead: redirects, listings and files without end, credentials, errors."""

import base64
import shutil
import ssl
import subprocess
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from listwright.ranking import remote
from listwright.ranking.errors import ListwrightError
from listwright.ranking.remote import Store, StoreError, Url


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch):
    for variable in ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "http_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)


SECRETS = ("session-token", "hf_secret", "Signature", "Bearer", "SharedKey")


@contextmanager
def http_server(answer, tls=None):
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
    if tls is not None:
        server.handle_error = lambda *_: None  # of a client that does not trust the certificate
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}", requests
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
    with (
        http_server(lambda handler: send(handler, status=302, Location=handler.path + "x")) as (other, seen),
        http_server(lambda handler: send(handler, status=302, Location=f"{other}/x")) as (first, asked),
    ):
        point_to(monkeypatch, first)
        with pytest.raises(StoreError, match=r"redirects to another server|answers 302"):
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


def error(code, status=400):
    return lambda handler: send(
        handler, f"<Error><Code>{code}</Code><Message>{HOSTILE}</Message></Error>".encode(), status
    )


HOSTILE = "text-of-the-store"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (error("ExpiredToken"), "have expired"),
        (error("InvalidAccessKeyId", 403), "does not know the credentials"),
        (error("SignatureDoesNotMatch", 403), "does not know the credentials"),
        (error("RequestTimeTooSkewed", 403), "the clock"),
        (error("AuthenticationFailed", 403), "or they have expired"),
        (error("AccessDenied", 403), "access is denied"),
        (error("NoSuchBucket", 404), "bucket or container does not exist"),
        (error("ContainerNotFound", 404), "bucket or container does not exist"),
        (error("Other", 418), "the store answers 418"),
        (lambda handler: send(handler, HOSTILE.encode()), "not understood"),
    ],
)
@pytest.mark.parametrize("url", ["s3://models/live", "az://account/models/live"])
def test_the_reason_of_an_error_is_said_in_our_words(url, answer, reason, monkeypatch):
    with http_server(answer) as (address, _):
        point_to(monkeypatch, address)
        with pytest.raises(StoreError, match=reason) as caught:
            Store(Url(url)).list_names()
        assert HOSTILE not in str(caught.value)
        if reason != "not understood":
            with pytest.raises(StoreError, match=reason):
                Store(Url(url)).read_small("CURRENT", 100)


FILES = [
    ("s3", "AWS_WEB_IDENTITY_TOKEN_FILE", {"AWS_ROLE_ARN": "arn:aws:iam::1:role/x"}),
    ("s3", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9/x"}),
    ("s3", "AWS_CA_BUNDLE", {}),
    ("s3", "SSL_CERT_FILE", {}),
    ("https", "SSL_CERT_FILE", {}),
    ("hf", "REQUESTS_CA_BUNDLE", {}),
    ("gs", "GOOGLE_APPLICATION_CREDENTIALS", {}),
    ("gs", "GOOGLE_SERVICE_ACCOUNT", {}),
    ("gs", "GOOGLE_SERVICE_ACCOUNT_PATH", {}),
    ("az", "AZURE_FEDERATED_TOKEN_FILE", {"AZURE_CLIENT_ID": "a", "AZURE_TENANT_ID": "b"}),
]
ADDRESSES = {
    "s3": "s3://models/live",
    "gs": "gs://models/live",
    "az": "az://account/models/live",
    "hf": "hf://owner/rankers/live",
    "https": "https://127.0.0.1:9/shop",
}


@pytest.mark.parametrize(("scheme", "variable", "more"), FILES)
def test_a_file_that_is_not_there_is_named_with_its_variable(scheme, variable, more, tmp_path, monkeypatch):
    for name, value in {variable: str(tmp_path / "absent"), "AWS_ENDPOINT_URL": "https://127.0.0.1:9", **more}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "https://127.0.0.1:9")
    monkeypatch.setenv("HF_ENDPOINT", "https://127.0.0.1:9")
    with pytest.raises((ListwrightError, StoreError), match=rf"{variable} names {tmp_path}/absent"):
        Store(Url(ADDRESSES[scheme])).read_small("CURRENT", 100)


@pytest.mark.parametrize(
    "variable", ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY"]
)
def test_blanks_around_a_secret_are_no_part_of_it_and_breaks_within_are_refused(variable, monkeypatch, capfd):
    url = {"AWS": "s3://models/live", "HF_": "hf://owner/rankers/live", "AZU": "az://account/models/live"}[variable[:3]]
    with http_server(lambda handler: send(handler, b"1")) as (address, requests):
        point_to(monkeypatch, address)
        monkeypatch.setenv(variable, " YWJj\n")
        assert Store(Url(url)).read_small("CURRENT", 100).content == b"1"
        if variable in ("AWS_SESSION_TOKEN", "HF_TOKEN"):
            assert "YWJj\n" in requests[0][1]
        monkeypatch.setenv(variable, "YWJj\nsecret")
        with pytest.raises(ListwrightError, match=f"^{variable}: holds a line break"):
            Store(Url(url))
    assert "secret" not in "".join(capfd.readouterr())


def test_a_panic_of_the_library_is_an_error(monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(_):
        raise PanicException("called `Result::unwrap()` on an `Err` value: secret")

    with pytest.raises(StoreError, match="not understood") as caught:
        Store(Url("s3://models/live"))._small.ask(Url("s3://models/live"), panic)
    assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A server's TLS context, and the file of the authority that signed its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    extensions = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE"]
    extensions += ["-CAkey", str(folder / "authority.key")]
    for name, *more in (
        ("authority", "-subj", "/CN=authority"),
        ("server", "-subj", "/CN=localhost", *extensions, "-CA", str(folder / "authority.pem")),
    ):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run([*made, *more, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context, folder / "authority.pem"


@pytest.mark.parametrize("url", [*STORES, "https"])
def test_a_private_authority_is_named_and_honoured(url, authority, monkeypatch):
    context, file = authority
    with http_server(lambda handler: send(handler, b"1"), context) as (address, requests):
        point_to(monkeypatch, address)
        url = Url(f"{address}/live" if url == "https" else url)
        with pytest.raises(StoreError, match=r"certificate is not trusted: SSL_CERT_FILE"):
            Store(url).read_small("CURRENT", 100)
        assert not requests
        for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.setenv(variable, str(file))
            assert Store(url).read_small("CURRENT", 100).content == b"1"
            monkeypatch.delenv(variable)


def test_the_proxy_of_the_environment_is_used_but_where_it_says_otherwise(monkeypatch):
    with http_server(lambda handler: send(handler, b"1")) as (proxy, seen):
        point_to(monkeypatch, "http://store.example:9000")
        monkeypatch.setenv("http_proxy", proxy.replace("://", "://user:a%3Ab@"))
        assert Store(Url("s3://models/live")).read_small("CURRENT", 100).content == b"1"
        monkeypatch.setenv("no_proxy", "store.example")
        with pytest.raises(StoreError, match="does not answer"):
            Store(Url("s3://models/live")).read_small("CURRENT", 100)
    ((path, headers),) = seen
    assert path == "http://store.example:9000/models/live/CURRENT"
    assert f"basic {base64.b64encode(b'user:a:b').decode()}" in headers
