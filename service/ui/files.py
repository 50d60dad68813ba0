"""The page's own files: read once, and sent with the headers that keep a browser to them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fastapi import HTTPException, Request, Response

STATIC = Path(__file__).resolve().parent / "static"

INDEX = "index.html"

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Files of these kinds are served, and no others."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing inline, nothing from elsewhere, and no text that becomes HTML: what a caller sends stays text."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

CACHING = "no-cache"
"""A browser asks each time whether its copy is the current one: modules name one another without a version."""


class StaticFile(NamedTuple):
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def read(folder: Path = STATIC) -> dict[str, StaticFile]:
    """All files of the page by their path below ``/ui/``."""
    found = {}
    for path in sorted(folder.rglob("*")):
        media_type = TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[path.relative_to(folder).as_posix()] = StaticFile(content, media_type, etag)
    return found


def answer(files: Mapping[str, StaticFile], name: str, request: Request) -> Response:
    """One file, or 304 where the caller has it already.

    Args:
        files: of :func:`read`.
        name: its path; empty for the page itself.
        request: says what the caller has.

    Raises:
        HTTPException: 404 for a name that is none of the files'.
    """
    found = files.get(name or INDEX)
    if found is None:
        raise HTTPException(404)
    headers = {**HEADERS, "ETag": found.etag, "Cache-Control": CACHING}
    if found.etag in _etags(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)


def _etags(sent: str) -> set[str]:
    """What an ``If-None-Match`` names; a proxy that compresses may have made a tag weak."""
    return {tag.strip().removeprefix("W/") for tag in sent.split(",")}
