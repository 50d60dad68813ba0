"""``listwright health``: whether the service of this environment is ready; for the container's health check.

Reads ``LISTWRIGHT_HOST``, ``LISTWRIGHT_PORT`` and ``LISTWRIGHT_TLS_CERT`` as the service does. Imports little, for it
runs every few seconds.
"""

from __future__ import annotations

import argparse
import http.client
import os
import ssl
import sys

from listwright.service.paths import READY

WITHIN_S = 2.0

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where the service listens everywhere, it is asked here
_NAMES = ("host", "port", "tls_cert")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0 if ``GET /readyz`` answers 200, else 1 with the reason."""
    argparse.ArgumentParser(
        prog="listwright health",
        description="Ask the service of this machine whether it is ready: exit 0 if GET /readyz answers 200, else 1. "
        "LISTWRIGHT_HOST, LISTWRIGHT_PORT and LISTWRIGHT_TLS_CERT say where it listens, as they tell the service.",
        epilog="example: LISTWRIGHT_PORT=8000 listwright health",
    ).parse_args(arguments)
    try:
        status = _status()
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"error: no answer: {error or type(error).__name__}", file=sys.stderr)
        return 1
    if status != 200:
        print(f"error: not ready: /readyz answers {status}", file=sys.stderr)
    return int(status != 200)


def _status() -> int:
    variables = {name.lower(): value for name, value in os.environ.items()}
    host, port, cert = (variables.get(f"listwright_{name}", "") for name in _NAMES)
    host = _ANY.get(host, host) or "127.0.0.1"
    number = int(port or 8000)
    connection = http.client.HTTPConnection(host, number, timeout=WITHIN_S)
    if cert:
        context = ssl.create_default_context()
        context.check_hostname = False  # the certificate names the host that callers know
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, number, timeout=WITHIN_S, context=context)
    try:
        connection.request("GET", READY, headers={"Connection": "close"})
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
