"""The command around the measuring: what is skipped, what is kept, and where."""

import json
import signal
from pathlib import Path

import pytest

from benchmarks.load.k6 import Step
from benchmarks.rivals import __main__ as command
from benchmarks.rivals.cores import Cores, IndivisibleError
from benchmarks.rivals.processes import NotServingError
from benchmarks.rivals.report import Result
from benchmarks.rivals.rising_load import Observation
from listwright_lab import machine


def result(contender, request_format, rate):
    step = Observation(Step(rate, 1.0, 1000, 0, 0, 5.0, 10.0, 12.0, 0.1), 5.0, 0.0, 100.0)
    return Result(contender.title, request_format.name, contender is command.OURS, {}, 1, 1.0, step, (step,))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(measure, *arguments)`` -> exit code, results, build."""
    results, build = tmp_path / "results", tmp_path / "build"
    monkeypatch.setattr(machine, "RESULTS", results)
    monkeypatch.setattr(command, "BUILD", build)
    monkeypatch.setattr(command, "prepare", lambda _: Path("k6"))
    monkeypatch.setattr(command.bundle, "load", lambda _: None)
    monkeypatch.setattr(command, "divided", lambda: Cores(frozenset({0}), frozenset({1})))
    monkeypatch.setattr(
        command.turns, "in_turns", lambda _, rival, at: {"rival": rival.title, "rate": at.offered, "ours": {}}
    )
    before = signal.getsignal(signal.SIGTERM)

    def run(measure, *arguments):
        monkeypatch.setattr(command, "measure", measure)
        monkeypatch.setattr("sys.argv", ["rivals", *arguments])
        code = command.main()
        written = [
            json.loads((at / "rivals.json").read_text()) if (at / "rivals.json").exists() else None
            for at in (results, build)
        ]
        return code, *written

    yield run
    signal.signal(signal.SIGTERM, before)


def test_what_does_not_serve_is_skipped_with_a_line(run, capsys):
    def measure(_, contender, request_format, limits):
        if contender.name == "ray":
            raise NotServingError("no memory left")
        rates = {"listwright": 300, "mlserver": 100}
        return result(contender, request_format, rates.get(contender.name, 50))

    code, results, build = run(measure)
    assert (code, build) == (0, None)
    assert results["skipped"] == {"Ray Serve, JSON rows": "no memory left"}
    assert [one["server"] for one in results["servers"]][-1] == "Listwright"
    assert results["headline"]["ours"]["JSON rows"]["within_the_limit"]["ratio"] == 3.0
    assert (results["in_turns"]["rival"], results["in_turns"]["rate"]) == ("MLServer", 100)
    assert "skipped: Ray Serve, JSON rows: no memory left" in capsys.readouterr().out


def test_a_shorter_run_says_so_in_its_command(run):
    def measure(bench, contender, request_format, limits):
        assert (bench.plan.step_s, bench.plan.rounds) == (5, 1)
        return result(contender, request_format, 100)

    _, results, _ = run(measure, "--seconds", "5", "--rounds", "1")
    assert results["command"] == "python -m benchmarks.rivals --seconds 5 --rounds 1"
    assert results["seconds_per_step"] == 5


def test_ours_is_asked_within_the_best_rivals_percentile_too(run):
    asked = {}

    def measure(_, contender, request_format, limits):
        asked[contender.name] = list(limits)
        return result(contender, request_format, 100)

    run(measure, "--limit-ms", "40")
    assert asked == {
        "fastapi": [40],
        "bentoml": [40],
        "litserve": [40],
        "mlserver": [40],
        "ray": [40],
        "listwright": [40, 10.0],
    }


def test_an_interrupted_run_keeps_what_it_has_and_touches_no_results(run):
    def measure(_, contender, request_format, limits):
        if contender.name == "litserve":
            raise KeyboardInterrupt
        return result(contender, request_format, 100)

    code, results, build = run(measure)
    assert (code, results, build["complete"]) == (1, None, False)
    assert [one["server"] for one in build["servers"]] == ["plain FastAPI", "BentoML"]


def test_a_quick_run_touches_no_results(run):
    code, results, build = run(
        lambda _, contender, request_format, limits: result(contender, request_format, 100), "--quick"
    )
    assert (code, results, build["complete"]) == (0, None, True)


def test_a_run_on_shared_cores_does_not_stand_in_for_one_apart(run):
    code, results, _ = run(
        lambda _, contender, request_format, limits: result(contender, request_format, 100), "--shared"
    )
    assert (code, results) == (0, None)
    written = json.loads((machine.RESULTS / "rivals_shared.json").read_text())
    assert written["command"] == "python -m benchmarks.rivals --shared"
    assert written["cores_of_the_server"] == written["cores_of_the_generator"]
    assert run(lambda _, contender, request_format, limits: result(contender, request_format, 100))[1]["workers"] == 1


def test_where_the_generator_can_have_no_core_the_way_out_is_named(run, monkeypatch, capsys):
    def divided():
        raise IndivisibleError("there is only one core")

    monkeypatch.setattr(command, "divided", divided)
    assert run(None) == (1, None, None)
    assert "there is only one core; use --shared" in capsys.readouterr().err


def test_a_run_without_ours_is_no_success(run):
    def measure(_, contender, request_format, limits):
        if contender is command.OURS:
            raise NotServingError("no bundle")
        return result(contender, request_format, 100)

    assert run(measure)[0] == 1
