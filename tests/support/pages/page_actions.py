"""What a reader does on the page, and sees of it."""

import json

from support.waiting import until

ORDER = "[role=listbox] [role=option]"


def ranked(page):
    """Names of the candidates that are in sight, best first, once no answer is on its way."""
    page.wait_for_selector(f"[role=listbox][aria-busy=false] {ORDER.rsplit(maxsplit=1)[-1]}")
    return page.locator(f"{ORDER} .name").all_inner_texts()


def text_of(page):
    return page.locator("main").inner_text()


def paste(page, text):
    """Paste a list under Try, and have it ranked."""
    if not page.locator("#pasted").is_visible():
        page.get_by_text("Paste JSON or CSV, or drop a file here").click()
    page.locator("#pasted").fill(text if isinstance(text, str) else json.dumps(text))
    page.get_by_role("button", name="Rank this").click()


def select(page, name):
    """Choose a candidate by its name."""
    page.locator(ORDER).filter(has=page.get_by_text(name, exact=True)).first.click()


def type_value(page, feature, value):
    """Type a number into a cell of the chosen candidate."""
    page.get_by_role("spinbutton", name=f"{feature}, number").fill(str(value))


def slide(page, feature, value):
    """Move the slider of a cell."""
    page.get_by_role("slider", name=feature, exact=True).evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        str(value),
    )


def show(page, tab):
    page.get_by_role("tab", name=tab).click()


def lies_over_the_edge(page):
    """How many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def hold(route, held):
    """Keep a request until the test lets it go on."""
    held.append(route)


def wait_for(page, condition):
    """Until the condition holds; meanwhile requests that a test answers itself are answered."""

    def holds():
        page.wait_for_timeout(20)
        return condition()

    until(holds, pause_s=0)
