"""Blocks of the tutorials, and what of their text counts."""

import re

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
FIGURE = re.compile(r"\d+\.\d+|\d+(?=%)")
"""These may differ between machines."""


def plain(text):
    """Without figures and line ends."""
    return " ".join(FIGURE.sub("0", text).split())
