"""``listwright COMMAND``: every program of the package under one name."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

from listwright.ranking.threads import threads


@dataclass(frozen=True, slots=True)
class Command:
    """One program.

    Args:
        module: Name of a module, whose ``main(arguments)`` runs the command and returns the exit code.
        about: One line of help.
        package: Requirement for pip that installs what the command needs.
    """

    module: str
    about: str
    package: str = "listwright[training]"


COMMANDS = {
    "generate": Command("listwright.training.commands.generate", "write synthetic ranking data of any size"),
    "fit": Command("listwright.training.commands.fit", "fit a bundle from data"),
    "diagnose": Command("listwright.training.commands.diagnose", "say before a long fit whether a second stage pays"),
    "tune": Command("listwright.training.commands.tune", "search the settings of a network"),
    "experiment": Command("listwright_lab.experiment", "compare rankers over folds and seeds", "listwright-lab"),
    "join": Command(
        "listwright.training.commands.join",
        "join a served log with events, into rows for a fit",
        "listwright[training,loop]",
    ),
    "score": Command("listwright.training.commands.score", "rank every list of a file"),
    "evaluate": Command("listwright.training.commands.evaluate", "judge a bundle on new labelled rows, or compare two"),
    "compare": Command("listwright.training.commands.compare", "say which of two rankers did better on traffic"),
    "propensity": Command("listwright.training.commands.propensity", "estimate how likely each place is looked at"),
    "estimate": Command("listwright.training.commands.estimate", "estimate from a log what a bundle would have got"),
    "page": Command("listwright.training.commands.page", "make report.html again from report.json"),
    "fetch": Command("listwright.training.commands.fetch", "copy a bundle out of MLflow", "listwright[mlflow]"),
    "export": Command("listwright.training.commands.export", "write a bundle's ranker as one ONNX file"),
    "verify": Command("listwright.ranking.commands.verify", "check a bundle as the service would, or such a file"),
    "publish": Command(
        "listwright.service.commands.publish", "give a bundle another name or version, and serve it", "listwright"
    ),
    "serve": Command("listwright.service.__main__", "serve bundles over HTTP"),
    "served": Command(
        "listwright.ranking.commands.served", "list a served log, remove a person's records", "listwright[loop]"
    ),
    "health": Command("listwright.service.commands.health", "ask whether the service of this machine is ready"),
}
"""By name, in the order of their use."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code of the command that it names."""
    command_line = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    if not command_line:
        parser.print_help()
        return 2
    name = parser.parse_args(command_line[:1]).command  # the rest is the command's own
    try:
        _prepare_libraries()
        try:
            module = import_module(COMMANDS[name].module)
        except ModuleNotFoundError as error:
            library = (error.name or "listwright").partition(".")[0]
            if library == "listwright":
                raise
            print(f"error: listwright {name} needs {library}: pip install '{COMMANDS[name].package}'", file=sys.stderr)
            return 1
        return int(module.main(command_line[1:]))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _prepare_libraries() -> None:
    """Set the number of threads for libraries, which read it when they are imported; a user's setting stays.

    Their threads sleep while they wait: otherwise they keep a core busy that another thread needs, and a step on a busy
    machine takes ten times as long.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads()))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<11} {command.about}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="listwright",
        usage="listwright COMMAND [OPTIONS]",
        description=f"Fit a ranker of whole lists, serve it, verify it.\n\ncommands:\n{listed}",
        epilog="example:\n  listwright fit demo\n  listwright fit --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"listwright {version('listwright')}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
