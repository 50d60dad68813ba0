"""Text on the page has the contrast of WCAG 2.2, 1.4.3: 4.5 to 1, on whatever it can stand, in both schemes."""

import re
from importlib import resources

import pytest

TEXT = ("ink", "soft", "c1", "c2", "c3", "bad-ink")
PAPER = ("paper", "panel", "field", "hover", "warn", "bad", "good")

BLOCKS = re.findall(
    r":root \{(.*?)\}",
    (resources.files("listwright.service") / "ui/static/styles/base.css").read_text(encoding="utf-8"),
    flags=re.DOTALL,
)


def luminance(colour):
    """As WCAG defines it."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("block", BLOCKS, ids=["light", "dark"])
def test_every_text_can_be_read_on_every_background(block):
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for text in TEXT:
        for paper in PAPER:
            low, high = sorted(luminance(colours[name]) for name in (text, paper))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (text, paper)
