"""``python tools/request_path.py``: the files of the product that a plain JSON ``/rerank`` enters, in order.

A hand-over is a call from one file of ``service`` or ``ranking`` into another, whatever libraries stand between them.
The application is called without a socket, so the connection
that reads the request and writes the answer is not among the files. The second request is counted: the first makes
what is made once. ``docs/architecture.md`` quotes the two numbers.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import FrameType

import httpx

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "models" / "demo" / "1"
PARTS = ("service", "ranking")


class Trace:
    """Entries into files of the product, from all threads, as ``(file, function)``."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self._frames: dict[int, FrameType] = {}  # kept, so that no other frame gets the id of one that has ended
        self._files: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take one event of ``sys.setprofile``."""
        if event != "call" or (file := self._file(frame)) is None or id(frame) in self._frames:
            return
        self._frames[id(frame)] = frame
        if file != self._caller(frame):
            self.entries.append((file, frame.f_code.co_qualname))

    def _caller(self, frame: FrameType) -> str | None:
        above = frame.f_back
        while above is not None and self._file(above) is None:
            above = above.f_back
        return None if above is None else self._file(above)

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._files:
            path = Path(name).resolve()
            inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PARTS
            self._files[name] = str(path.relative_to(ROOT)) if inside else None
        return self._files[name]


async def trace_request(folder: Path, body: object) -> list[tuple[str, str]]:
    """Return the entries of the second of two requests to a bundle."""
    app = create_app(Settings(bundle=folder), models=bundle.load(folder))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            (await client.post("/rerank", json=body)).raise_for_status()
            trace = Trace()
            threading.setprofile(trace)
            sys.setprofile(trace)
            try:
                (await client.post("/rerank", json=body)).raise_for_status()
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return trace.entries


def main() -> None:
    """Print the entries, and their numbers."""
    features = dict.fromkeys(feature.name for feature in bundle.load(DEMO).manifest.feature_schema.features)
    body = {"candidates": [{"id": name, "features": features} for name in ("a", "b")]}
    entries = asyncio.run(trace_request(DEMO, body))
    for file, function in entries:
        print(f"{file:40} {function}")
    print(f"{len({file for file, _ in entries})} files, {len(entries)} hand-overs")


if __name__ == "__main__":
    main()
