"""What the committed results have to hold: a run that does not is not committed as if it did."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("request_format", "limit"), [("npy", 1.10), ("columnar JSON", 1.30), ("rows by name", 1.60)])
def test_a_hundred_candidates_over_the_floor(request_format, limit):
    (row,) = (row for row in result("floor")["table"] if (row["candidates"], row["format"]) == (100, request_format))
    assert row["over_floor"] <= limit


def test_engines_of_both_stages():
    (first,) = (row for row in result("compute")["first_stage"] if row["candidates"] == 100)
    (second,) = (row for row in result("compute")["second_stage"] if row["candidates"] == 100)
    assert first["compiled times"] >= 5
    assert second["inference form ms"] <= 0.8 * second["as trained ms"]


def test_list_relative_columns_cost_little_beside_the_trees():
    for length, limit in ((100, 1.25), (1000, 1.35)):
        (row,) = (row for row in result("compute")["relative_columns"] if row["candidates"] == length)
        for columns in ("40 columns of 20 features", "40 columns, half of categories"):
            assert row[f"{columns} ms"] <= limit * row["without ms"]


def test_the_plain_first_stage_is_the_default_where_nothing_is_planted_and_never_where_shifts_are():
    run = result("choice")
    found = {(one["data"], one["default"]): one["seeds"] for one in run["defaults"]}
    assert run["seeds"] >= 10
    assert found["without a shift", "plain"] >= 0.9 * run["seeds"]
    assert ("with planted shifts", "plain") not in found


def test_four_clients_on_two_cores():
    shares = [row["of_cores_over_floor"] for row in result("throughput")["clients"] if row["settings"][0] == "2"]
    assert len(shares) == 2
    assert min(shares) >= 0.8


def test_a_candidate_costs_the_same_in_long_lists():
    assert all(0.85 <= row["upper_over_lower"] <= 1.15 for row in result("throughput")["cost"])


def test_three_times_the_best_of_the_others():
    run = result("rivals")
    for request_format in (".npy", "JSON rows"):
        assert run["in_turns"]["ours"][request_format]["carried"] >= 3
    assert run["headline"]["ours"][".npy"]["at_the_rivals_p99"]["ratio"] >= 3
    assert run["skipped"] == {}, "all five are beside ours"


def test_overload():
    run = result("overload")
    assert all(run["held"].values()), run["held"]
    assert set(run["overload"]["answers"]) == {"200", "429"}


def test_no_body_holds_the_event_loop_much_longer_than_an_honest_one():
    for bundle in ("demo", "wide"):
        assert max(row["times_honest"] for row in result("bodies")[bundle]["bodies"]) <= 3.0


def test_a_flood_of_other_requests_leaves_most_to_rankings():
    assert min(row["of_alone"] for row in result("floods")["table"]) >= 0.5


def test_each_part_of_the_transport_earns_its_keep():
    run = result("transport")
    assert run["connection"]["h11"]["of_ours"] <= 0.9
    assert (
        run["answers"]["ours"]["head without end, MB held"]
        < 1
        < run["answers"]["httptools"]["head without end, MB held"]
    )
    assert "closed" not in run["limit"]["ours"]["who is there"], "429 of pacing is an answer"
    assert run["limit"]["ours"]["newcomers"] == {"200": 20}
    assert "closed" in run["limit"]["limit_concurrency"]["who is there"]
    assert run["accept"]["ours"]["busiest_worker"] <= 0.6 <= run["accept"]["plain_accept"]["busiest_worker"]
    assert run["shedding"]["no_shedding"]["of_ours"] <= 0.8


def test_nothing_is_lost():
    drained = result("drain")["rolling_restart"]
    assert set(drained["outcomes"]) == {"200"}
    assert drained["requests"] >= 2000
    assert set(result("swaps")["outcomes"]) == {"200"}
    assert result("swaps")["swaps"] >= 100


def test_decoders_never_crashed():
    for decoder in result("fuzz")["decoders"].values():
        assert decoder["crashes"] == 0
        assert decoder["seconds"] >= 600


def test_the_confusion_loss():
    run = result("confusion")
    assert run["ratio_to_step_without"]["all_pairs"] <= 3.5
    assert run["ratio_to_step_without"]["quarter_of_pairs"] <= 1.5
    assert run["peak_memory_gib"] < 2
    assert all(model["share"] < 0.1 for model in result("epoch")["models"].values())


def test_a_diagnosis_of_a_hundred_thousand_rows_takes_less_than_a_minute():
    tables = result("diagnose")["tables"]
    assert [(table["rows"], table["numeric"]) for table in tables] == [(100_000, 20), (100_000, 136)]
    assert max(table["cpu_seconds"] for table in tables) < 60


def test_a_hundred_candidates_are_explained_on_one_core_in_less_than_two_seconds():
    found = result("explain")
    assert (found["candidates"], found["features"]) == (100, 136)
    assert max(one["slowest_s"] for one in found["times"]) < 2.0
    assert max(one["claimed"] for one in found["times"]) <= 0.02
