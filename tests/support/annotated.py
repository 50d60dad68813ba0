"""What checks the annotations of the packages while tests run: jaxtyping's import hook, with beartype."""

import asyncio
import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from jaxtyping import install_import_hook
from pydantic import ValidationInfo

ROOT = Path(__file__).resolve().parents[2]

ENABLED = bool(os.environ.get("CHECK_ANNOTATIONS"))
"""``make nightly`` sets the variable."""

HOT = {"listwright.ranking.onnx_graph"}
"""Modules that are left out: it takes the parts of a graph one by one, and would take ten times as long."""

MEANT = {
    ValidationInfo: Any,  # pydantic has not made this protocol for tests
    asyncio.Transport: Any,  # uvloop's are none to Python
    BinaryIO: io.BufferedIOBase,  # a file in memory has no name
    int: int | np.integer,  # what comes out of an array, mypy cannot tell from Python's
}
"""What beartype takes otherwise than mypy."""

AS_MYPY = BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict(MEANT))
"""A whole number is good where a float is asked for, too."""

LEFT_OUT = {"listwright.training.estimator.Qilcm.__init__"}
"""An estimator of scikit-learn's kind keeps whatever it is given, and refuses it when it fits."""


def checked(function):
    """Arguments and result are looked at together, once the function has returned.

    jaxtyping looks at the arguments alone before the call, too. That one look is left out: a function that refuses bad
    input with an error of its own may be given some.
    """
    only_arguments = function.__annotations__.get("return") is Any
    if only_arguments or f"{function.__module__}.{function.__qualname__}" in LEFT_OUT:
        return function
    return beartype(function, conf=AS_MYPY)


def modules():
    """The modules whose annotations are checked."""
    for package in ("ranking", "service", "training"):
        for path in (ROOT / package).rglob("*.py"):
            name = "listwright." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if path.stem != "__init__" and name not in HOT:  # the name of a package would stand for all below it
                yield name


def install():
    """Before any of them is imported."""
    install_import_hook(list(modules()), "support.annotated.checked")
