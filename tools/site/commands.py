"""The page of the commands, from their own argument parsers."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

from tables import code, fenced, page, plain, table

from listwright.command import COMMANDS, Command


class _CapturedParser(Exception):  # noqa: N818 - no error: it carries the parser out of a command that must not run
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def commands() -> str:
    """Return Markdown: one section per command, with its options and examples."""
    promise = "After this page you can call every command with the options that it takes."
    listed = table(
        ["command", "what it does"],
        [[f"[`listwright {name}`](#{name})", command.about] for name, command in COMMANDS.items()],
    )
    return page("Commands", promise, listed, *(_section(name, command) for name, command in COMMANDS.items()))


def _section(name: str, command: Command) -> str:
    parser = parser_of(command)
    parts = [f"## {name}\n", f"{plain(' '.join(str(parser.description).split()))}\n", fenced(_usage(parser))]
    for group in parser._action_groups:
        rows = [
            [_names(parser, action), _help(parser, action)] for action in group._group_actions if action.dest != "help"
        ]
        if rows:
            title = str(group.title)
            parts += [f"### {name}: {title}\n", table(["argument", "meaning"], rows)]
    if parser.epilog:
        parts.append(fenced(parser.epilog))
    return "\n".join(parts)


def parser_of(command: Command) -> argparse.ArgumentParser:
    """Return the parser that a command builds for itself.

    Raises:
        RuntimeError: if the command reads no arguments.
    """

    def capture(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise _CapturedParser(parser)

    module = import_module(command.module)
    with _signals_kept(), patch.object(argparse.ArgumentParser, "parse_args", capture):
        try:
            module.main([])
        except _CapturedParser as caught:
            return caught.parser
    raise RuntimeError(f"{command.module}.main calls no parse_args: the page of commands cannot show its options")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the signal handlers afterwards: ``serve`` installs its own first."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _usage(parser: argparse.ArgumentParser) -> str:
    with patch.dict("os.environ", {"COLUMNS": "80"}):
        lines = parser.format_usage().splitlines()
    return "\n".join(line[len("usage: ") :] for line in lines)  # the others are indented by as much


def _names(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    written = parser._get_formatter()._format_args
    if not action.option_strings:
        return code(written(action, action.dest).strip("[]"))
    value = "" if action.nargs == 0 else f" {written(action, action.dest.upper())}"
    return ", ".join(code(option + value) for option in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return plain(parser._get_formatter()._expand_help(action)) if action.help else ""
