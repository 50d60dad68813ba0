"""Byte streams of HTTP/1.1 requests, good and damaged, and what three readers make of them."""

import asyncio
from dataclasses import dataclass, field

import h11
import httptools
from hypothesis import strategies as st

from support.service.connections import connected, turns

TOKENS = (b"X-A", b"accept", b"X-Request-ID", b"Content-Type", b"traceparent", b"x-upgrade")
PIECES = (
    b"\r\nUpgrade: h2c",
    b"\r\nUpgrade:" + b"x" * 54,
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"0\r\n\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\0\xff",
    b"a",
    b'{"features":[[1]]}',
)
DAMAGE = (
    *PIECES,
    b" ",
    b"\t",
    b"\x0b",
    b":",
    b",",
    b";",
    b"0",
    b"+",
    b"-1",
    b"0x1",
    b"chunked",
    b"gzip, ",
    b"identity",
    b"HTTP/1.0",
    b"\r\nHost: y",
    b"\r\nContent-Length: 5",
    b"\r\nContent-Length: 0",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\nTransfer-Encoding: gzip, chunked",
    b"\r\nConnection: close",
    b"\r\n X-Folded: 1",
)


@dataclass(frozen=True)
class SentRequest:
    """A request as it should be seen."""

    method: bytes
    target: bytes
    body: bytes
    fields: tuple = field(default=(), compare=False)
    """Of its head, names in lower case; only we and the writer of the stream tell."""


@dataclass
class StreamOutcome:
    """What a reader saw: complete requests, and whether it refused what came after them."""

    requests: list = field(default_factory=list)
    refused: bool = False


_text = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
_word = st.text("abcXYZ019-_.", min_size=1, max_size=8).map(str.encode)
_value = st.lists(st.sampled_from([b"a", b"b c", b"d\te", b"\xe9", b'"f"', b"g;h=1", b"1, 2"]), max_size=3).map(
    b",".join
)


@st.composite
def requests(draw, last=False, blank=(b"", b"\r\n")):
    """One request: what it is, and its bytes."""
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"OPTIONS", b"DELETE"]))
    target = b"/" + draw(st.sampled_from([b"", b"rerank", b"v2/models/shop/infer?x=1", b"a%20b/c", b"livez"]))
    fields = [(b"Host", draw(st.sampled_from([b"x", b"localhost:80", b"[::1]:8000", b"a.b"])))]
    fields += draw(st.lists(st.tuples(st.sampled_from(TOKENS), _value), max_size=3))
    body, framing = draw(_text), draw(st.sampled_from(["none", "length", "chunked"]))
    sent = b""
    if framing == "none":
        body = b""
    elif framing == "length":
        fields.append((draw(st.sampled_from([b"Content-Length", b"content-length"])), b"%d" % len(body)))
        sent = body
    else:
        fields.append((b"Transfer-Encoding", draw(st.sampled_from([b"chunked", b"Chunked"]))))
        sent = draw(chunks(body))
    if draw(st.booleans()):
        fields += [
            (b"Connection", b"Upgrade, HTTP2-Settings"),
            (b"Upgrade", draw(st.sampled_from([b"h2c", b"websocket"]))),
        ]
    elif last and draw(st.booleans()):
        fields.append((b"Connection", b"close"))
    if body and draw(st.booleans()):
        fields.append((b"Expect", b"100-continue"))
    fields = draw(st.permutations(fields))
    version = b"HTTP/1.0" if last and framing != "chunked" and draw(st.booleans()) else b"HTTP/1.1"
    head = b" ".join((method, target, version)) + b"\r\n"
    head += b"".join(
        name + b":" + draw(st.sampled_from([b"", b" ", b"\t "])) + value + b"\r\n" for name, value in fields
    )
    asked = SentRequest(method, target, body, tuple((name.lower(), value) for name, value in fields))
    return asked, draw(st.sampled_from(blank)) + head + b"\r\n" + sent


@st.composite
def chunks(draw, body):
    """A body in chunks, with extensions and trailer fields."""
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True) if a < b]
    extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
    size = draw(st.sampled_from([b"%x", b"%X", b"0%x"]))
    trailers = draw(
        st.lists(st.tuples(st.sampled_from([b"X-Request-ID", b"Content-Type", b"Authorization"]), _word), max_size=2)
    )
    sent = b"".join(size % len(part) + extension + b"\r\n" + part + b"\r\n" for part in parts)
    return (
        sent
        + b"0"
        + extension
        + b"\r\n"
        + b"".join(name + b": " + value + b"\r\n" for name, value in trailers)
        + b"\r\n"
    )


@st.composite
def streams(draw, most=4, **form):
    """Requests one behind the other: what they are, and their bytes."""
    count = draw(st.integers(1, most))
    drawn = [draw(requests(last=number == count - 1, **form)) for number in range(count)]
    return [asked for asked, _ in drawn], b"".join(sent for _, sent in drawn)


@st.composite
def damaged(draw):
    """The bytes of requests after a few changes."""
    stream = draw(streams(most=3, blank=(b"",)))[1]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(stream)))
        stream = stream[:at] + draw(st.sampled_from(DAMAGE)) + stream[at + draw(st.integers(0, 3)) :]
    return stream


def packets(stream, cuts):
    """The stream, cut there."""
    cuts = sorted({cut for cut in cuts if 0 < cut < len(stream)})
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


def by_us(sent, *, eager=True):
    """What our connection makes of packets, and what it answers.

    Args:
        sent: packets; none is delivered while the connection does not read.
        eager: whether the application gets its turn between two packets.
    """
    seen = StreamOutcome()

    async def app(scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        seen.requests.append(
            SentRequest(scope["method"].encode(), scope["raw_path"] + query, body, tuple(scope["headers"]))
        )
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def run():
        with connected(app) as connection:
            transport = connection.transport
            for packet in sent:
                for _ in range(10_000):
                    if transport.reading or transport.ended is not None:
                        break
                    await turns(5)
                else:
                    raise AssertionError("it never reads on")
                if transport.ended is None and not transport.half_closed:
                    connection.data_received(packet)
                if eager:
                    await turns(5)
            await turns(200)
            seen.refused = transport.half_closed
            return transport.written

    written = asyncio.run(run())
    return seen, written


def by_h11(stream):
    """What h11 makes of it, but for blank lines before a request, which it refuses and RFC 9112 (section 2.2) lets pass."""
    seen = StreamOutcome()
    rest = stream.lstrip(b"\r\n")
    while rest:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2**20)
        connection.receive_data(rest)
        try:
            asked = _first_of(connection)
        except h11.RemoteProtocolError:
            seen.refused = True
            break
        if asked is None:
            break
        seen.requests.append(asked)
        if connection.our_state is h11.MUST_CLOSE:
            break
        rest = connection.trailing_data[0].lstrip(b"\r\n")
    return seen


def _first_of(connection):
    request, body = None, b""
    while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            return SentRequest(bytes(request.method), bytes(request.target), bytes(body))
    return None


class _Collecting:
    def __init__(self):
        self.requests = []

    def on_message_begin(self):
        self.target, self.body = b"", b""

    def on_url(self, url):
        self.target += url

    def on_headers_complete(self):
        self.method = self.parser.get_method()

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.requests.append(SentRequest(self.method, self.target, self.body))


def by_llhttp(stream):
    """What llhttp makes of it in its strict mode, up to an offer to upgrade; and whether there was one."""
    collecting, upgrade = _Collecting(), False
    parser = collecting.parser = httptools.HttpRequestParser(collecting)
    try:
        parser.feed_data(stream)
    except httptools.HttpParserUpgrade:
        upgrade = True
        collecting.requests.pop()  # it stops before the body, which it takes for another protocol
    except httptools.HttpParserError:
        pass
    return collecting.requests, upgrade
