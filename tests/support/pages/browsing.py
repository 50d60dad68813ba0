"""A real browser for the tests that look at pages."""

import contextlib
import shutil

import pytest


@contextlib.contextmanager
def chromium():
    """Chromium without a window; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    with contextlib.ExitStack() as closing:
        driver = closing.enter_context(playwright.sync_playwright())
        try:
            path = found[0] if found else None
            browser = closing.enter_context(driver.chromium.launch(executable_path=path, args=["--no-sandbox"]))
        except playwright.Error as error:
            if found:
                raise
            pytest.skip(f"no Chromium: install one, or run playwright install chromium ({str(error).splitlines()[0]})")
        yield browser
