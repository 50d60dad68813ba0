"""The same answers in every format however packets divide what is sent, at a live process; and other people's readers."""

import http.client
import json
import shutil
import socket
import subprocess
import textwrap
import time
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.http.binary_requests import MATRIX, body, features, saved
from support.http.rerank_requests import ROWS
from support.strategies import scale_examples
from support.waiting import PATIENCE_S

JSON = json.dumps({"candidates": [{"features": row} for row in ROWS]}).encode()
TENSORS = body([features()], MATRIX.tobytes())
FORMATS = {
    "json": (b"/rerank", {b"Content-Type": b"application/json"}, JSON),
    "npy": (b"/rerank", {b"Content-Type": b"application/x-npy", b"Accept": b"application/x-npy"}, saved(MATRIX)),
    "tensors": (
        b"/v2/models/shop/infer",
        {name.encode(): value.encode() for name, value in TENSORS["headers"].items()},
        TENSORS["content"],
    ),
}
MORE = (
    {},
    {b"Connection": b"Upgrade, HTTP2-Settings", b"Upgrade": b"h2c", b"HTTP2-Settings": b"AAMAAABkAAQ"},
    {b"Expect": b"100-continue"},
)


def wire(name, *, chunked=False, more=None, trailers=b""):
    """A request's bytes."""
    path, fields, content = FORMATS[name]
    fields = {b"Host": b"x", **fields, **(more or {})}
    if chunked:
        fields[b"Transfer-Encoding"] = b"chunked"
        parts = [content[:7], content[7:100], content[100:]]
        content = (
            b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n" + trailers + b"\r\n"
        )
    else:
        fields[b"Content-Length"] = b"%d" % len(content)
    head = b"".join(name + b": " + value + b"\r\n" for name, value in fields.items())
    return b"POST " + path + b" HTTP/1.1\r\n" + head + b"\r\n" + content


def connect(live):
    connection = socket.create_connection((live.base_url.host, live.base_url.port), timeout=PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def answers(connection, count):
    """Status, request id and what is in the body of so many answers; those on the way are passed over."""
    found = []
    with connection.makefile("rb") as stream:
        while len(found) < count:
            status = int(stream.readline().split()[1])
            fields = http.client.parse_headers(stream)
            if status == 100:
                continue
            content = stream.read(int(fields["content-length"]))
            if fields["content-type"].startswith("application/json"):
                content = {key: value for key, value in json.loads(content).items() if key in ("scores", "outputs")}
            found.append((status, fields["x-request-id"], content))
    return found


@pytest.fixture(scope="module")
def expected(live):
    """The content of the answer in each format."""
    found = {}
    for name in FORMATS:
        with connect(live) as connection:
            connection.sendall(wire(name))
            ((status, _, content),) = answers(connection, 1)
        assert status == 200
        found[name] = content
    return found


@pytest.mark.nightly
@settings(max_examples=scale_examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(sorted(FORMATS)), st.booleans(), st.sampled_from(MORE)), min_size=1, max_size=4
    ),
    cuts=st.lists(st.integers(1, 2000), max_size=5),
)
def test_every_format_reads_the_same(live, expected, asked, cuts):
    sent = b"".join(wire(name, chunked=chunked, more=more) for name, chunked, more in asked)
    places = sorted({0, len(sent), *(cut % len(sent) for cut in cuts)})
    with connect(live) as connection:
        for start, end in pairwise(places):
            connection.sendall(sent[start:end])
            time.sleep(0.002)
        found = answers(connection, len(asked))
    assert [(status, content) for status, _, content in found] == [(200, expected[name]) for name, _, _ in asked]


@pytest.mark.parametrize(
    "trailer",
    [b"X-Request-ID: trailer", b"Content-Encoding: gzip", b"Content-Type: text/plain", b"Authorization: Bearer x"],
)
def test_trailers_say_nothing(live, expected, trailer):
    """RFC 9110, section 6.5.1: they may not be merged into the head unless that is known to be safe."""
    sent = wire("json", chunked=True, trailers=trailer + b"\r\n", more={b"X-Request-ID": b"head"})
    with connect(live) as connection:
        connection.sendall(sent)
        assert answers(connection, 1) == [(200, "head", expected["json"])]


HEAD = b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400),
        (HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        (b"GET /livez HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\nHost: a\n\n", 400),
        (b"GET /livez\r\n\r\n", 505),
        (b"GET /livez HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", 501),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 100 + b"\r\n", 431),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: 1\r\n" * 101 + b"\r\n", 431),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"1" * 70_000 + b"\r\n\r\n", 431),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 20_000, 400),
    ],
)
def test_what_http_forbids_ends_the_connection(live, sent, status):
    with connect(live) as connection:
        connection.sendall(sent)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, response.headers["connection"]) == (status, "close")
        assert json.loads(response.read())["status"] == status


@pytest.mark.parametrize("sent", [b"GET /livez HTTP/1.0\r\n\r\n", b"GET /livez HTTP/1.1\r\nHost:\r\n\r\n"])
def test_what_http_allows_is_answered(live, sent):
    with connect(live) as connection:
        connection.sendall(sent)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 200


@pytest.mark.nightly
def test_an_endless_extension_is_refused(live):
    with connect(live) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;")
        for _ in range(40):
            connection.sendall(b"a" * 1000)
            time.sleep(0.001)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 400


@pytest.mark.parametrize("more", [{}, {b"Content-Encoding": b"gzip"}])
def test_who_waits_to_send_its_body_is_told_whether_the_connection_goes_on(live, more):
    """Refused before the body was asked for, it may send it or not: the connection ends (RFC 9110, section 10.1.1)."""
    sent = wire("json", more={b"Expect": b"100-continue", **more})
    head = sent[: -len(JSON)]
    with connect(live) as connection:
        connection.sendall(head)
        if not more:
            assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
            connection.sendall(JSON)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert (response.status, response.headers["connection"]) == ((415, "close") if more else (200, None))


ASK = """
    import java.net.URI;
    import java.net.http.*;

    public class Ask {
        public static void main(String[] arguments) throws Exception {
            var client = HttpClient.newHttpClient();  // offers h2c with every first request
            for (int i = 0; i < 3; i++) {
                var request = HttpRequest.newBuilder(URI.create(arguments[0]))
                    .header("Content-Type", "application/json")
                    .expectContinue(i == 1)
                    .POST(HttpRequest.BodyPublishers.ofString(arguments[1])).build();
                var response = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.println(response.statusCode() + " " + response.version() + " " + response.body());
            }
        }
    }
"""


@pytest.mark.nightly
def test_the_client_of_java(live, expected, tmp_path):
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed: apt-get install default-jdk-headless")
    (tmp_path / "Ask.java").write_text(textwrap.dedent(ASK))
    ran = subprocess.run(
        [java, str(tmp_path / "Ask.java"), str(live.base_url.join("/rerank")), JSON.decode()],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    lines = [line.split(" ", 2) for line in ran.stdout.splitlines()]
    assert [line[:2] for line in lines] == [["200", "HTTP_1_1"]] * 3
    assert [json.loads(line[2])["scores"] for line in lines] == [expected["json"]["scores"]] * 3
