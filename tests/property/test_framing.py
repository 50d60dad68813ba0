"""Where requests begin and end: the same however packets divide them, and the same as other readers say."""

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from support.service.streams import by_h11, by_llhttp, by_us, damaged, packets, streams
from support.strategies import scale_examples

FIELDS = b" /rerank HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
BODY = b"a\r\nUpgrade: xxxxxxx\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
"""Looks like the end of one head and the whole of another."""

OFFERS = b"POST" + FIELDS + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY + b"GET" + FIELDS + b"\r\n"


def statuses(written):
    """Of the answers, without those on the way: whether a body is asked for depends on when it comes."""
    return re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", written)


@pytest.mark.nightly
@settings(max_examples=scale_examples(300))
@given(streams(), st.lists(st.integers(0, 2000)), st.booleans())
def test_packets_change_nothing(stream, cuts, eager):
    asked, sent = stream
    seen, written = by_us(packets(sent, cuts), eager=eager)
    assert seen.requests == asked
    assert [request.fields for request in seen.requests] == [request.fields for request in asked], "no trailers"
    assert not seen.refused
    assert statuses(written) == [b"200"] * len(asked)


@settings(max_examples=scale_examples(10))
@given(streams(most=2))
def test_nor_do_packets_of_one_byte(stream):
    asked, sent = stream
    assert by_us(packets(sent, range(len(sent))))[0].requests == asked


def test_lines_in_a_body_stay_there():
    """Once such lines were cut out of what seemed to be a head: a proxy saw another end of the body than we did."""
    for cut in range(1, len(OFFERS)):
        first, second = by_us(packets(OFFERS, [cut]))[0].requests
        assert (first.method, first.body) == (b"POST", BODY)
        assert (second.method, second.body) == (b"GET", b"")


@pytest.mark.nightly
@settings(max_examples=scale_examples(300))
@given(damaged(), st.lists(st.integers(0, 2000), max_size=3))
def test_nor_do_packets_change_what_is_refused(sent, cuts):
    whole, written = by_us([sent])
    parts, written_of_parts = by_us(packets(sent, cuts))
    assert parts == whole
    assert statuses(written_of_parts) == statuses(written)


@settings(max_examples=scale_examples(300))
@given(damaged())
@example(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
@example(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n0\r\n\r\n")
def test_no_request_is_seen_that_others_do_not_see(sent):
    """Where they see more, they let pass what we refuse. llhttp takes two blanks for one in a request line."""
    assume(not re.search(rb"[A-Z]  |  HTTP", sent))
    ours = by_us([sent])[0].requests
    assert by_h11(sent).requests[: len(ours)] == ours
    strict, upgrade = by_llhttp(sent)
    assert ours[: len(strict)] == strict[: len(ours)]
    assert len(ours) <= len(strict) or upgrade
