"""Texts of data that commands print: no control character of theirs reaches the terminal."""

import argparse
import io

import pytest
from rich.table import Table
from rich.text import Text

from listwright.ranking.errors import DataError, plain_text
from listwright.training.console.bars import progress_bars
from listwright.training.console.command import PlainConsole, run_command

HOSTILE = "a\x1b[31mb\x9b2Jc\x07d\u202ee\x00f\u2028g"
CONTROLS = set("\x1b\x9b\x07\u202e\x00\u2028")
PLAIN = "a·[31mb·2Jc·d·e·f·g"


def printed(console):
    return console.file.getvalue()


@pytest.fixture
def console():
    return PlainConsole(file=io.StringIO(), width=80, highlight=False)


def test_every_way_to_print_is_plain(console):
    table = Table(HOSTILE)
    table.add_column(Text(HOSTILE))
    table.add_row(HOSTILE, Text(HOSTILE))
    for what in (HOSTILE, Text(HOSTILE), table):
        console.print(what, markup=False, soft_wrap=True)
    console.out(HOSTILE)
    assert CONTROLS.isdisjoint(printed(console))
    assert printed(console).count("a·[31mb·2Jc") == 7


def test_colours_and_lines_of_our_own_stay():
    console = PlainConsole(file=io.StringIO(), force_terminal=True, color_system="standard", highlight=False)
    console.print(f"[red]{HOSTILE}[/]\nb", soft_wrap=True)
    assert printed(console).startswith("\x1b[31ma·[31mb·2Jc")
    assert printed(console).count("\x1b") == 2
    assert printed(console).endswith("\nb\n")


def test_notes_and_tasks_are_plain_and_one_line(console):
    with progress_bars(console) as bars:
        bars.say(f"{HOSTILE}\nok", heading="table")
        bars.remark(f"{HOSTILE}\nok")
        bars.begin(HOSTILE, 3).end(3, HOSTILE)
    lines = printed(console).splitlines()
    assert f"table: {PLAIN}·ok" in lines
    assert f"Note: {PLAIN}·ok" in lines
    assert CONTROLS.isdisjoint(printed(console))


def test_an_error_is_plain_and_one_line(capsys):
    def work(_options, _console):
        raise DataError("t.csv", "is wrong", line=3, column=f"{HOSTILE}\nBundle: models/x/1")

    assert run_command(argparse.ArgumentParser(), work, [], interrupted="") == 1
    assert capsys.readouterr().out == f"error: t.csv, line 3, column {PLAIN}·Bundle: models/x/1: is wrong\n"


def test_letters_of_other_scripts_stay():
    assert plain_text("Größe, 价格, قیمت, ±0.5, 😀") == "Größe, 价格, قیمت, ±0.5, 😀"


def test_a_space_that_holds_a_number_and_its_unit_together_stays(console):
    console.print("the 95\u00a0% interval")
    assert printed(console) == "the 95\u00a0% interval\n"
