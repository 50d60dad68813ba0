"""The pages of the recipes and of the Python packages."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

from tables import fenced, page, plain, table

PACKAGES = {
    "listwright.ranking": "After this page you can load a bundle, rank a list and measure the ranking.",
    "listwright.training": "After this page you can fit a bundle from Python, as a scikit-learn estimator.",
    "listwright.training.losses": "After this page you can train a torch module of your own with these losses.",
    "listwright_client": "After this page you can ask a service from Python and handle each of its errors.",
}
"""What ``__all__`` of each names has a section, and what the reader can do after its page."""


def recipes(*folders: Path) -> str:
    """Return Markdown: every shipped recipe, with its description."""
    files = sorted((path for folder in folders for path in folder.glob("*.toml")), key=lambda path: path.stem)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in files}
    abouts = {name: str(tomllib.loads(text)["about"]) for name, text in texts.items()}
    return page(
        "Recipes",
        "After this page you can choose a recipe, or copy one and change it.\n\n"
        "`listwright fit NAME` takes each of them; those that end in `-paper` come with `listwright-lab`.",
        table(["recipe", "what it is"], [[f"[`{name}`](#{name})", plain(about)] for name, about in abouts.items()]),
        *(f"## {name}\n\n{fenced(text, 'toml')}" for name, text in texts.items()),
    )


def package(name: str) -> str:
    """Return Markdown: every name that a package offers, in the order of ``__all__``; mkdocstrings fills it in."""
    names = import_module(name).__all__
    return page(f"Python: `{name}`", PACKAGES[name], *(f"::: {name}.{member}\n" for member in names))
