"""``listwright COMMAND`` runs the program of that name with the words behind it."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from listwright import command
from listwright.command import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_a_program_that_calls_itself_so(name, capsys):
    module = importlib.import_module(COMMANDS[name].module)
    with pytest.raises(SystemExit) as left:
        module.main(["--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: listwright {name} ")


def test_words_and_exit_code_are_passed_on(monkeypatch):
    heard = []
    monkeypatch.setattr(
        command, "import_module", lambda _: SimpleNamespace(main=lambda words: heard.extend(words) or 3)
    )
    assert main(["verify", "models/demo/1", "--help"]) == 3
    assert heard == ["models/demo/1", "--help"]


def test_words_come_from_the_command_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["listwright", "verify", "a"])
    monkeypatch.setattr(command, "import_module", lambda _: SimpleNamespace(main=len))
    assert main() == 1


def test_nothing_is_answered_with_help(capsys):
    assert main([]) == 2
    said = capsys.readouterr().out
    assert all(name in said for name in COMMANDS)


@pytest.mark.parametrize("words", [["ft"], [""]])
def test_another_word_is_refused_with_what_there_is(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert "fit" in capsys.readouterr().err


def test_ctrl_c_during_the_imports_is_one_line(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_module", interrupt)
    assert main(["fit", "demo"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def missing(name):
    def fail(_):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return fail


def test_a_missing_library_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr(command, "import_module", missing("rich"))
    assert main(["fit", "demo"]) == 1
    assert "listwright fit needs rich: pip install 'listwright[training]'" in capsys.readouterr().err


def test_a_missing_module_of_our_own_is_no_missing_library(monkeypatch):
    monkeypatch.setattr(command, "import_module", missing("listwright.training.nothing"))
    with pytest.raises(ModuleNotFoundError):
        main(["fit"])


@pytest.mark.parametrize(
    ("words", "thing"),
    [
        (["experiment", "table2"], "listwright experiment"),
        (["fit", "demo", "--model", "dlcm"], "model 'dlcm'"),
        (["fit", "srm-paper"], "recipe 'srm-paper'"),
    ],
)
def test_what_the_laboratory_brings_is_named_where_it_is_missing(words, thing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "listwright_lab", None)
    monkeypatch.delitem(sys.modules, "listwright_lab.experiment", raising=False)
    assert main(words) == 1
    answer = "".join(capsys.readouterr())
    assert thing in answer
    assert "pip install listwright-lab" in answer.replace("'", "")
    assert answer.count("\n") == 1
