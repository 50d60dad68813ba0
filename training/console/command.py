"""Parts shared by command lines: a command's run and its errors, list options, and a command line to repeat."""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from listwright.ranking.atomic_file import atomic_write, is_written_in_place
from listwright.ranking.errors import ListwrightError, RecipeError, plain_text

_NAME = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|\Z)')


class PlainConsole(Console):
    """Console that prints control characters of texts, which may come from data, as dots."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of what is printed."""
        for segment in super().render(renderable, options):
            text = "\n".join(map(plain_text, segment.text.split("\n")))
            yield segment if segment.control else segment._replace(text=text)

    def _check_buffer(self) -> None:
        """Write what was printed; once the output is closed or full, print nothing more: the work goes on."""
        with suppress(OSError, SystemExit):
            try:
                super()._check_buffer()
            except OSError:
                self.on_broken_pipe()


def command_parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """Return the parser of a command, whose help keeps the line breaks of the texts."""
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"listwright {name}", None, description, epilog, formatter_class=formatter)


def run_command(
    parser: argparse.ArgumentParser,
    work: Callable[[argparse.Namespace, Console], int | None],
    arguments: Sequence[str] | None,
    *,
    interrupted: str | Callable[[argparse.Namespace], str],
) -> int:
    """Run a command; an error or an interruption prints one line.

    Args:
        parser: Parser of the command's options.
        work: Function of the options and the console that returns the exit code, None for 0. ``options.arguments`` has
            the arguments as they were given.
        arguments: Arguments of the command; None for those of this process.
        interrupted: Message after Ctrl-C on what is left, or a function of the options that returns it.

    Returns:
        The exit code: 1 after an error with a remedy, or a closed output, 130 after Ctrl-C, or else that of the work.
    """
    given_arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(given_arguments)
    options.arguments = given_arguments
    console = PlainConsole(highlight=False)
    try:
        return work(options, console) or int(console.quiet)
    except (ListwrightError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(plain_text(str(error)))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print(f"interrupted: {interrupted if isinstance(interrupted, str) else interrupted(options)}")
        return 130


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None], bundles: Iterable[str | Path] = ()
) -> None:
    """Raise RecipeError unless a command can write the files that its output options name, and no other option does."""
    named_by = {os.path.realpath(path): option for option, path in inputs.items() if path is not None}
    named_by |= {os.path.realpath(path): "BUNDLE" for path in bundles if isinstance(path, Path)}
    for option, path in ((option, path) for option, path in outputs.items() if path is not None):
        if not path.parent.is_dir():
            raise RecipeError(f"{option} {path}: there is no folder {path.parent}; make it first")
        if path.is_dir():
            raise RecipeError(f"{option} {path}: is a folder; choose another name")
        in_place = is_written_in_place(path)
        if not os.access(path if in_place else path.parent, os.W_OK):
            raise RecipeError(f"{option} {path}: {path.parent} cannot be written to; choose another folder")
        for place, other in named_by.items() if not in_place else ():
            if os.path.realpath(path) == place or (path.exists() and Path(place).exists() and path.samefile(place)):
                raise RecipeError(f"{other} and {option} name the same file, {path}: choose another {option}")
            is_ignored = path.suffix in (".html", ".json") and other != "BUNDLE"  # no data are in them
            if path.exists() and not is_ignored and path.resolve().is_relative_to(place):
                raise RecipeError(f"{option} {path}: {other} reads this file; choose another {option}")
        named_by[os.path.realpath(path)] = option


def write_output(path: Path | None, content: Callable[[], str], console: Console) -> None:
    """Write the file that an option names, if it is given, and print its path."""
    if path is not None:
        atomic_write(path, content())
        if not is_written_in_place(path):  # a redirected output would be overwritten
            console.print(f"written: {path}", markup=False, soft_wrap=True)


def print_table(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1
) -> None:
    """Print a table: so many columns of texts, then columns of numbers, which are never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=Text(title))
    for place, name in enumerate(head):
        is_text = place < texts
        table.add_column(Text(name), justify="left" if is_text else "right", no_wrap=not is_text)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in the text of a list option; ``action="extend"`` adds them to those of the same option before.

    Convention: commas separate names, blanks around a name do not count. A name that contains a comma stands in double
    quotes, as in CSV: ``"price, net",shop``.

    Raises:
        ArgumentTypeError: if there is none.
    """
    parts = ((quoted, plain.strip()) for quoted, plain in _NAME.findall(text))
    names = tuple(quoted.replace('""', '"') or plain for quoted, plain in parts if quoted or plain)
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one or more, separated by commas")
    return names


def add_weights_option(parser: argparse.ArgumentParser) -> None:
    """Add the weights of goals, as a request has them."""
    parser.add_argument(
        "--weights",
        type=_split_weights,
        metavar="GOAL=W,GOAL=W",
        help="weights of goals from 0, as in a request (default: those of the bundle)",
    )


def _split_weights(text: str) -> dict[str, float]:
    weights = {}
    for pair in split_names(text):
        name, _, number = pair.rpartition("=")
        weights[name] = as_number(number)
        if not (name and 0.0 <= weights[name] < math.inf):
            raise argparse.ArgumentTypeError(f"{pair!r}: expected a goal, = and a number from 0, such as margin=0.3")
    return weights


def as_number(text: str) -> float:
    """Return the number of a text; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def in_list(name: str) -> str:
    """Return a name as a list option takes it, quoted for a shell: :func:`split_names` reads it."""
    plain = "," not in name and not name.startswith('"') and name == name.strip()
    return shlex.quote(name if plain else '"' + name.replace('"', '""') + '"')


def repeatable(command: str, arguments: Sequence[str], *, names: Sequence[str] = ()) -> str:
    """Return ``listwright COMMAND ARGUMENTS`` without what belongs to one machine or one attempt.

    Folders of paths are removed, as other machines lack them, and so are ``--out``, ``--study``, ``--json``,
    ``--trec``, ``--jobs``, ``--on``, ``--track`` and ``--resume``, which do not change the result.

    Args:
        command, arguments: Name and arguments of the command.
        names: Arguments that are no paths of files, and stay as they are.
    """
    attempt = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in ("--out", "--study", "--json", "--trec", "--jobs", "--on"):
        attempt.add_argument(option)
    attempt.add_argument("--tr", "--tra", "--trac", "--track")  # its URI may hold a password: abbreviations, too
    attempt.add_argument("--resume", action="store_true")
    _, rest = attempt.parse_known_args(list(arguments))
    portable_arguments = [
        word if word in names or "--default" in (before, word.partition("=")[0]) else _without_folder(word)
        for before, word in pairwise(["", *rest])
    ]
    return f"listwright {command} {shlex.join(portable_arguments)}".rstrip()


def _without_folder(word: str) -> str:
    split, same, path = word.rpartition("=")
    return split + same + Path(path).name if "/" in path else word
