"""What a worker must share with the command that it works for: versions and the working folder.

This file is the first that a worker of a cluster imports. It imports no library that starts threads.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from listwright.ranking.errors import RecipeError
from listwright.training.cluster.processes import ONE_THREAD

LIBRARIES = ("listwright", "ray", "lightgbm", "numpy", "polars", "torch")
"""Whose versions decide what a fit gives, or whether two processes understand each other."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The command that tasks belong to.

    Args:
        folder: its working folder, which every node must see under the same path.
        versions: of Python and of :data:`LIBRARIES`.
    """

    folder: str
    versions: dict[str, str]

    def enter(self) -> None:
        """Make this process a worker of that command, with one thread.

        Raises:
            RecipeError: if a version differs, or the folder is not there.
        """
        os.environ.update(ONE_THREAD)
        here = versions()
        for name, wanted in self.versions.items():
            if here.get(name) != wanted:
                raise RecipeError(
                    f"node {socket.gethostname()} has {name} {here.get(name)}, and this command has {name} {wanted}: "
                    "install the same version on every node"
                )
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise RecipeError(
                f"node {socket.gethostname()} does not see {self.folder}, the folder of this command: start it in a "
                "folder on storage that all nodes mount under the same path"
            ) from error


def here() -> Origin:
    """This process."""
    return Origin(str(Path.cwd()), versions())


@cache
def versions() -> dict[str, str]:
    """Of Python and of :data:`LIBRARIES`, as they are installed here."""
    return {"Python": platform.python_version(), **{name: _version(name) for name in LIBRARIES}}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def call(origin: Origin, work: bytes) -> Any:
    """Run pickled work: a function and its arguments. It is unpickled only once the versions are known to agree."""
    origin.enter()
    function, arguments = pickle.loads(work)  # noqa: S301  # written by the command itself, a moment ago
    return function(*arguments)


def packed(function: Callable[..., object], *arguments: object) -> bytes:
    """Work for :func:`call`."""
    return pickle.dumps((function, arguments), protocol=5)
