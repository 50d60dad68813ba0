"""Names that a package offers and loads at first use: its import stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, modules: Mapping[str, str], *, extra: str = "") -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names load at first use (PEP 562).

    Args:
        package: Name of the package.
        modules: Module of the package that holds each offered name.
        extra: Extra of the distribution that installs the libraries that these modules need.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{modules[name]}"), name)
        except ModuleNotFoundError as error:
            if not extra or error.name is None or error.name.startswith("listwright"):
                raise
            hint = f"{package}.{name} needs {error.name.partition('.')[0]}: pip install 'listwright[{extra}]'"
            raise ModuleNotFoundError(hint, name=error.name) from error

    return load
