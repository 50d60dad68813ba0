"""HTTP/1.1 by hand, for what no client library would send."""

import http.client
import json

BODY = json.dumps({"features": [[1.0, 2.0, 3.0, "A5"]]}).encode()


def request(*headers, extra=0, method=b"POST"):
    """A request's head for :data:`BODY` and ``extra`` bytes more."""
    lines = (method + b" /rerank HTTP/1.1", b"Host: x", b"Content-Type: application/json", *headers)
    return b"\r\n".join([*lines, b"Content-Length: %d" % (len(BODY) + extra), b"", b""])


def answer(connection):
    """Status, headers and body of one answer."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.headers, response.read()


def closed(connection):
    """Wait until the other side has closed."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


LONG = json.dumps({"features": [[1.0, 2.0, 3.0, "A5"]] * 500}).encode()
