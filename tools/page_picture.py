"""``python tools/page_picture.py [FILE.png]``: the picture of the page in README and docs.

Serves the demo bundle, opens the page in headless Chromium, chooses a list and a candidate, and takes a picture.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
BUNDLE = ROOT / "models" / "demo" / "1"
PICTURE = ROOT / "docs" / "page.png"

WIDTH, HEIGHT = 1400, 860
"""Pixels of the window: as README shows it, its words can be read."""

LIST, CANDIDATE = "4", 1
"""The golden list, from 0, and the place of the candidate whose values are shown."""

READY_WITHIN_S = 60.0
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> int:
    """Run the command line; return 0 once the picture is written."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    settings = {"LISTWRIGHT_BUNDLE": str(BUNDLE), "LISTWRIGHT_PORT": str(port), "LISTWRIGHT_UI": "true"}
    service = subprocess.Popen([sys.executable, "-m", "service"], cwd=ROOT, env={**os.environ, **settings})
    try:
        _wait_until_ready(address)
        with sync_playwright() as driver, driver.chromium.launch(**_browser()) as browser:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            _show(page, address)
            page.screenshot(path=target)
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(timeout=20)
    sys.stdout.write(f"{target}\n")
    return 0


def _browser() -> dict[str, Any]:
    """Return the launch options of the system's browser, or else playwright's own; it runs as root, too."""
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next((path for name in names if (path := shutil.which(name))), None)
    return {"executable_path": executable, "args": ["--no-sandbox"]}


def _wait_until_ready(address: str) -> None:
    deadline = time.perf_counter() + READY_WITHIN_S
    while time.perf_counter() < deadline:
        try:
            with _direct.open(address + "/readyz", timeout=1):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise SystemExit(f"the service was not ready within {READY_WITHIN_S:.0f} s")


def _show(page: Page, address: str) -> None:
    """Open the view that the picture is of."""
    page.goto(f"{address}/ui/")
    page.get_by_label("Golden list of the bundle").select_option(LIST)
    page.get_by_text("Time in the service").wait_for()
    page.locator("[role=listbox][aria-busy=false] [role=option]").nth(CANDIDATE).click()
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)


if __name__ == "__main__":
    sys.exit(main())
