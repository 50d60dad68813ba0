"""Checks of a request's head by RFC 9110 and RFC 9112, beyond those of the parser (llhttp).

A request whose framing could be read in two ways is refused, and its connection ends: a proxy in front may have read it
in the other way.
"""

from __future__ import annotations

import http
import re
from collections.abc import Sequence

from listwright.ranking.errors import ListwrightError

MAX_HEAD_BYTES = 64 * 2**10
"""Bytes of a request line with its header fields."""

MAX_FIELDS = 100
"""Header fields of a request; also trailer fields, which are dropped."""

MAX_TARGET_BYTES, MAX_PARAMETERS = 16 * 2**10, 150
"""Bytes of a request's target, and separators in its query: each parameter takes time."""

MAX_BLANK_BYTES = 64
"""Bytes of empty lines before a request."""

UNREAD = frozenset((b"cookie",))
"""Fields that the service does not read. Parsing them costs time: Python's cookies are quadratic."""

MAX_CHUNKS = 2**14
"""Chunks of a body: each takes time, however small it is."""

MAX_FRAMING_BYTES = 16 * 2**10
"""Bytes of chunk extensions and trailer fields together."""

CHUNK_BYTES = 16
"""Bytes that a chunk may take beside its data, before they count as an extension."""

Fields = Sequence[tuple[bytes, bytes]]
"""Header fields in their order, names in lower case."""

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(:[0-9]*)?")


_ENCODED = re.compile(rb"%(?:2[d-fD-F]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])")
"""A character that needs no percent sign, as it is unreserved (RFC 3986, section 2.3), or a slash."""


class RefusedRequestError(ListwrightError):
    """A request that is not served, and after which nothing more is read from its connection.

    Args:
        status: Status of the answer.
        detail: Fault and remedy.
    """

    def __init__(self, status: http.HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def check_head(method: bytes, version: str, fields: Fields) -> None:
    """Check a complete head.

    Args:
        method: Method of the request line.
        version: Version of HTTP, e.g. ``1.1``.
        fields: Fields of the head.

    Raises:
        RefusedRequestError: 400 for a missing, repeated or malformed ``Host`` (RFC 9112, section 3.2) and for a
            ``Transfer-Encoding`` of HTTP/1.0 (section 6.1); 501 for a transfer coding that is not known (section 6.1)
            and for ``CONNECT``; 505 for another version.
    """
    if version not in ("1.0", "1.1"):
        raise RefusedRequestError(http.HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "send HTTP/1.1 or HTTP/1.0")
    if method == b"CONNECT":
        raise RefusedRequestError(http.HTTPStatus.NOT_IMPLEMENTED, "CONNECT is not possible: this server is no proxy")
    hosts = [value for name, value in fields if name == b"host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise _bad(f"there are {len(hosts)} Host fields: send one")
    if hosts and _HOST.fullmatch(hosts[0].strip(b" \t")) is None:
        raise _bad("the Host field is no name or address with a port")
    codings = transfer_codings(fields)
    if codings and version == "1.0":
        raise _bad("HTTP/1.0 has no Transfer-Encoding: send Content-Length, or HTTP/1.1")
    if any(coding != b"chunked" for coding in codings):  # llhttp refuses chunked that comes twice, or before another
        detail = "the only Transfer-Encoding that is understood is chunked"
        raise RefusedRequestError(http.HTTPStatus.NOT_IMPLEMENTED, detail)


def check_target(target: bytes) -> None:
    """Check a request's target.

    Raises:
        RefusedRequestError: 414 if it is too long, or its query has too many parameters; 400 if its path spells a
            letter, a digit or one of ``-._~/`` with a percent sign: a proxy that compares paths would not know it.
    """
    path, _, query = target.partition(b"?")
    if len(target) > MAX_TARGET_BYTES or query.count(b"&") >= MAX_PARAMETERS:
        raise RefusedRequestError(
            http.HTTPStatus.REQUEST_URI_TOO_LONG,
            f"the target is over {MAX_TARGET_BYTES} bytes, or its query over {MAX_PARAMETERS} parameters",
        )
    if _ENCODED.search(path) is not None:
        raise _bad("the path spells a letter, a digit or one of -._~/ as %XX: send it as it is")


def transfer_codings(fields: Fields) -> list[bytes]:
    """Return transfer codings in the order in which they were applied, in lower case; empty where there are none."""
    lists = (value for name, value in fields if name == b"transfer-encoding")
    return [coding.strip(b" \t").lower() for value in lists for coding in value.split(b",")]


def head_of_same_framing(fields: Fields) -> bytes | None:
    """Return a minimal head with the same framing of the body as these fields; None where they announce no body."""
    if transfer_codings(fields):
        return b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    length = next((value.strip(b" \t").lstrip(b"0") for name, value in fields if name == b"content-length"), b"")
    return b"POST / HTTP/1.1\r\nContent-Length: %s\r\n\r\n" % length if length else None


def too_large(what: str) -> RefusedRequestError:
    """Return a 431 for a head that is over ``what``."""
    return RefusedRequestError(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the request's head is over {what}")


def too_finely_cut() -> RefusedRequestError:
    """Return a 400 for a body of too many chunks, or too much framing."""
    return _bad(
        f"the body has more than {MAX_CHUNKS} chunks, or {MAX_FRAMING_BYTES} bytes of chunk extensions and trailers: "
        "send larger chunks, or Content-Length"
    )


def _bad(detail: str) -> RefusedRequestError:
    return RefusedRequestError(http.HTTPStatus.BAD_REQUEST, detail)
