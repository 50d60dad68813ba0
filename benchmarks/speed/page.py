"""``python -m benchmarks.speed.page``: how quickly the page answers a hand, with 1,000 candidates.

Moves a slider, walks the list and turns to its next part, in headless Chromium. Of each it takes the time from the
event to the next picture on the screen; of the slider also the time until the new order stands there.
"""

from __future__ import annotations

import json
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

import numpy as np
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = ROOT / "models" / "demo" / "1"
CANDIDATES, TIMES, WARM_UP = 1000, 40, 5

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

MEASURE = """async ([what, times]) => {
    const list = document.querySelector("[role=listbox]");
    const drawn = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const settled = async () => { while (list.getAttribute("aria-busy") === "true") await drawn(); };
    const acts = {
        slider: n => {
            const slider = document.querySelector("input[type=range]");
            slider.value = Number(slider.min) + (Number(slider.max) - Number(slider.min)) * ((n * 37) % 100) / 100;
            slider.dispatchEvent(new Event("input", {bubbles: true}));
        },
        keys: n => {
            const key = n % 2 ? "ArrowUp" : "ArrowDown";
            list.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        },
        parts: n => [...document.querySelectorAll(".parts button")][n % 2 ? 0 : 1].click(),
    };
    const found = [];
    for (let n = 0; n < times; n += 1) {
        await settled();
        await drawn();
        const began = performance.now();
        acts[what](n);
        await drawn();
        const shown = performance.now() - began;
        await settled();
        found.push([shown, performance.now() - began]);
    }
    return found;
}"""


def body(names: list[str]) -> str:
    """Return a list of numbers and categories that differ."""
    rng = np.random.default_rng(0)
    rows = [
        [*np.round(rng.normal(size=len(names) - 2), 4).tolist(), *(f"v{n}" for n in rng.integers(1, 9, size=2))]
        for _ in range(CANDIDATES)
    ]
    return json.dumps({"feature_names": names, "features": rows, "ids": [f"offer-{n}" for n in range(CANDIDATES)]})


def measure(page: Page, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the milliseconds to the next picture, and to the new order; ``(TIMES,)`` each."""
    times = np.array(page.evaluate(MEASURE, [what, TIMES + WARM_UP]))[WARM_UP:]
    return times[:, 0], times[:, 1]


def _format_times(milliseconds: np.ndarray) -> str:
    return f"median {np.median(milliseconds):5.1f} ms, p95 {np.quantile(milliseconds, 0.95):5.1f} ms"


def main() -> int:
    """Run the command line; print a line for each act."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"LISTWRIGHT_BUNDLE": str(BUNDLE), "LISTWRIGHT_PORT": str(port), "LISTWRIGHT_UI": "true"}
    command, environment = [sys.executable, "-m", "service"], {**os.environ, **settings}
    service = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(address)
        with _direct.open(address + "/info") as answer:
            names = [feature["name"] for feature in json.load(answer)["features"]]
        executable = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
        with (
            sync_playwright() as driver,
            driver.chromium.launch(executable_path=executable, args=["--no-sandbox"]) as browser,
        ):
            page = browser.new_page(viewport={"width": 1600, "height": 1000})
            page.goto(f"{address}/ui/")
            page.get_by_text("Paste JSON or CSV, or drop a file here").click()
            page.locator("#pasted").fill(body(names))
            page.get_by_role("button", name="Rank this").click()
            page.get_by_role("heading", name="Pasted list").wait_for()
            page.locator(".parts").wait_for()
            for what in ("slider", "keys", "parts"):
                painted, settled = measure(page, what)
                print(f"{what:<7} to the next picture: {_format_times(painted)}")
                if what == "slider":
                    print(f"{what:<7} to the new order:    {_format_times(settled)}")
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(timeout=20)
    return 0


def _wait_until_ready(address: str) -> None:
    deadline = time.perf_counter() + 60
    while time.perf_counter() < deadline:
        try:
            with _direct.open(address + "/readyz", timeout=1):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise SystemExit("the service was not ready within 60 s")


if __name__ == "__main__":
    sys.exit(main())
