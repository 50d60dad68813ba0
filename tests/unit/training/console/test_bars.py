"""Without a terminal a run says how far it is, in plain lines; with one, bars move as ever."""

import io
import threading
import time

import polars as pl
import pytest
from rich.console import Console
from rich.progress import TextColumn

from listwright.training.console import bars as showing
from listwright.training.console.bars import CHECK_S, LINE_S, Bars, progress_bars
from listwright.training.console.progress import Stopwatch
from listwright.training.recipe import config
from listwright_lab.suites import oracle, specialised
from listwright_lab.suites.listwise import suite
from listwright_lab.suites.listwise.measurement import MethodFit
from listwright_lab.suites.results_folder import ResultsFolder
from support.stand_ins import standing_in
from support.waiting import PATIENCE_S


class Clock:
    """Stands still until it is told."""

    now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Log(io.StringIO):
    """A file that counts how often it is flushed."""

    flushed = 0

    def flush(self):
        self.flushed += 1


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def bars(clock, log, monkeypatch):
    """Bars without a terminal, whose thread looks only when a test does."""
    monkeypatch.setattr(showing, "CHECK_S", 1e6)
    with Bars(TextColumn("{task.description}"), console=Console(file=log), pace=30.0, clock=clock) as bars:
        yield bars


def pass_by(bars, clock, seconds):
    """Let time pass, with a look every second."""
    for _ in range(seconds):
        clock.now += 1.0
        bars.tell()


def told(log):
    return log.getvalue().splitlines()


def test_a_line_comes_at_least_every_half_minute(bars, clock, log):
    assert LINE_S + CHECK_S < 30.0
    pass_by(bars, clock, 24)
    assert told(log) == [], "what is over within seconds prints nothing"
    pass_by(bars, clock, 600)
    assert len(told(log)) == 24
    assert told(log)[-1] == "0:10:00  working", "a sign of life, though nothing reports any progress"
    assert log.flushed >= 24


def test_a_line_says_stage_task_how_much_and_time_left(bars, clock, log):
    watch = Stopwatch(bars)
    pass_by(bars, clock, 5)
    with watch.step("first stage"):
        task = bars.add_task("Tuning LightGBM", total=20)
        for done in range(1, 4):
            pass_by(bars, clock, 60)
            bars.update(task, completed=done, description=f"Tuning LightGBM, held-out NDCG@10 0.{done}")
        pass_by(bars, clock, 5)
    assert told(log)[0] == "0:00:25  first stage (0:00:20): Tuning LightGBM, 0 of 20"
    assert told(log)[-1] == (
        "0:02:55  first stage (0:02:50): Tuning LightGBM, held-out NDCG@10 0.2, 2 of 20, about 0:18:00 left"
    )


def test_a_stage_without_tasks_is_named_and_timed(bars, clock, log):
    finished, left_open = bars.add_task("Training QILCM", total=3), bars.add_task("Router, by folds", total=4)
    bars.update(finished, completed=3)
    bars.update(left_open, completed=1)
    bars.enter("export and parity")
    pass_by(bars, clock, 25)
    assert told(log) == ["0:00:25  export and parity (0:00:25)"], "no task of an earlier stage"


def test_the_task_that_moves_is_told_and_the_next_one_after_it(bars, clock, log):
    bars.enter("first stage")
    tuning, folding = bars.add_task("Tuning", total=2), bars.add_task("Folds", total=5)
    pass_by(bars, clock, 25)
    bars.update(tuning, completed=2)
    pass_by(bars, clock, 25)
    bars.update(folding, completed=1)
    pass_by(bars, clock, 25)
    assert [line.rpartition(": ")[2] for line in told(log)] == ["Tuning, 0 of 2", "Folds, 0 of 5", "Folds, 1 of 5"]


def test_an_open_task_that_moves_no_more_gives_way(bars, clock, log):
    """EM may end before its last iteration; then the router's folds begin."""
    bars.enter("specialists")
    steps, folding = bars.add_task("EM", total=100), bars.add_task("Router, by folds", total=4)
    for _ in range(2):
        clock.now += 10.0
        bars.update(steps, advance=20)
    bars.update(folding, completed=0)
    pass_by(bars, clock, 25)
    assert told(log) == ["0:00:25  specialists (0:00:25): Router, by folds, 0 of 4"]


def test_a_task_without_an_end_has_no_time_left(bars, clock, log):
    task = bars.add_task("Reading rows.gz, kB", total=None)
    for kilobytes in (1_000, 2_000_000):
        pass_by(bars, clock, 20)
        bars.update(task, completed=kilobytes)
    pass_by(bars, clock, 10)
    assert told(log)[-1] == "0:00:50  Reading rows.gz, kB, 2,000,000"


def test_lines_are_plain(clock, log, monkeypatch):
    """Without control characters, whatever the environment says of colours, and not wrapped."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(showing, "CHECK_S", 1e6)
    console = Console(file=log, width=20, highlight=True)
    with Bars(console=console, pace=30.0, clock=clock) as bars:
        bars.add_task("Reading [bold]a[/] \\[x] :smile: 0.1234 and much more that a narrow console would wrap", total=3)
        pass_by(bars, clock, 25)
        (line,) = told(log)
    assert line == "0:00:25  Reading a [x] :smile: 0.1234 and much more that a narrow console would wrap, 0 of 3"


def test_at_the_end_every_task_is_printed_once(clock, log, monkeypatch):
    monkeypatch.setattr(showing, "CHECK_S", 1e6)
    with progress_bars(Console(file=log)) as bars:
        bars.update(bars.add_task("Tuning", total=2), completed=2)
        assert told(log) == []
    (line,) = told(log)
    assert line.startswith("Tuning")
    assert "2/2" in line


def test_a_run_without_tasks_leaves_nothing(log):
    with progress_bars(Console(file=log)):
        pass
    assert log.getvalue() == ""


def test_with_a_terminal_bars_move_and_no_line_is_printed(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with Bars(TextColumn("{task.description}"), console=Console(file=terminal), pace=30.0, clock=clock) as bars:
        bars.add_task("Tuning", total=2)
        assert bars.live.is_started
        assert threading.active_count() > 1
        clock.now += 100.0
        bars.refresh()
    assert "\x1b[" in terminal.getvalue()
    assert "0:01:40" not in terminal.getvalue()


def test_a_dumb_terminal_gets_lines(clock, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(showing, "CHECK_S", 1e6)
    terminal = Terminal()
    with Bars(console=Console(file=terminal), pace=30.0, clock=clock) as bars:
        pass_by(bars, clock, 25)
    assert terminal.getvalue() == "0:00:25  working\n"


def test_a_quiet_console_has_no_thread(clock, log):
    before = threading.active_count()
    with Bars(console=Console(file=log, quiet=True), pace=30.0, clock=clock) as bars:
        assert threading.active_count() == before
        bars.add_task("Tuning")
    assert log.getvalue() == ""


class Watched(Log):
    """Says when something was written that holds the words."""

    def __init__(self, words):
        super().__init__()
        self.words, self.seen = words, threading.Event()

    def write(self, text):
        written = super().write(text)
        if self.words in self.getvalue():
            self.seen.set()
        return written


@pytest.fixture
def hasty(monkeypatch):
    """Lines as fast as the thread can."""
    monkeypatch.setattr(showing, "LINE_S", 0.0)
    monkeypatch.setattr(showing, "CHECK_S", 0.001)


@pytest.mark.nightly
def test_the_thread_tells_while_the_run_is_in_one_long_call(hasty):
    log = Watched("anomaly score")
    before = threading.active_count()
    with progress_bars(Console(file=log)) as bars:
        bars.enter("anomaly score")
        assert log.seen.wait(PATIENCE_S)
    assert threading.active_count() == before
    size = len(log.getvalue())
    time.sleep(0.02)
    assert len(log.getvalue()) == size, "nothing after the end"


def test_the_thread_ends_with_a_run_that_fails(hasty):
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no"), progress_bars(Console(file=Log())):
        raise RuntimeError("no")
    assert threading.active_count() == before


def test_fits_side_by_side_are_told(hasty, monkeypatch, tmp_path):
    log = Watched("table2: dlcm, 1 of 3")

    fit = standing_in(MethodFit, name="seed-0-fold-1-dlcm", method="dlcm", state_name="seed-0-fold-1")

    def leave(place):
        assert place == fit.place

    found = pl.DataFrame({"method": ["dlcm"] * 3})
    store = standing_in(ResultsFolder, has=lambda name: False, join=lambda names: found, leave=leave)

    def one_by_one(todo, *_, **_more):
        yield fit
        assert log.seen.wait(PATIENCE_S)

    monkeypatch.setattr(suite, "_in_order", one_by_one)
    assert suite.run_all("table2", [fit] * 3, store, 1, Console(file=log)) is found


def test_units_of_a_suite_are_told(hasty, monkeypatch, tmp_path):
    log = Watched("seed 0, fold 1: SRM, K = 5, 0 of 1")

    def measured(recipe, sources, counts, state, ndcg_at, task):
        task.note("seed 0, fold 1: SRM, K = 5")
        assert log.seen.wait(PATIENCE_S)
        raise KeyboardInterrupt

    store = standing_in(ResultsFolder, has=lambda name: False, state=lambda name: tmp_path)
    monkeypatch.setattr(oracle, "measure", measured)
    asked = specialised.SpecialisedOptions("oracle", config.load("planted"), (), (1, 5), 1, (1,), 10, "", {})
    with pytest.raises(KeyboardInterrupt):
        specialised._measure_all(asked, store, Console(file=log))
