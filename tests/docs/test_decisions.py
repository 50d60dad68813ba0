"""The tables of the decisions are the committed measurements, and their rules hold there."""

import pytest

from support.pages.figure_blocks import blocks, page, result, table

READERS = ("without the scanner", "msgspec", "simdjson", "pydantic_core")
FORMS = {"rows_by_name": "rows by name", "matrix": "matrix"}
LENGTHS = (10, 100, 1000)
SETS = ("airline", "mq2008", "ohsumed")
FAULTS = {
    "a killed worker is replaced, s": ("killed", "another_starts_after_s", ".2f"),
    "a stalled worker is replaced, s": ("stalled", "another_starts_after_s", ".1f"),
    "workers fail as they start: starts in 20 s": ("failing", "starts", "d"),
    "a stop ends a stalled worker, s": ("told_to_end", "ended_after_s", ".1f"),
    "the supervisor is killed: its port is free, s": ("orphaned", "port_is_free_after_s", ".1f"),
}
GOALS = {
    "planted": "planted: booked, margin",
    "planted-value": "planted: booked, margin of the booked",
    "orange-margin": "orange juice: units, margin in %",
    "orange-money": "orange juice: units, money",
    "tafeng": "Ta Feng: bought, paid",
}
WAYS = {
    "optimum": "optimum",
    "shares": "shares",
    "sum": "scores",
    "conditioned": "one model",
    "eleven": "eleven fits",
}
SCRAPES = {
    "what a request counts, µs": ("request_us", ".1f"),
    "a scrape, ms": ("scrape_ms", ".1f"),
    "a scrape after 50 replaced workers, ms": ("scrape_after_ms", ".1f"),
    "what these workers leave behind, KiB": ("left_kib", ",.0f"),
}


def selection():
    """Decision 2: the first stage alone, chosen on the validation split or by folds."""
    rows = []
    for name in SETS:
        seeds = result(f"selection_{name}")["seeds"]
        columns = [" ".join(f"{one[column]:.3f}" for one in seeds) for column in ("valid", "folds", "standard_error")]
        rows.append([name, *columns])
    return table(["NDCG@10, a figure for each seed", "valid", "folds", "standard error of the difference"], rows)


def engines():
    """Decision 4: the first stage by each engine."""
    run = {row["candidates"]: row for row in result("compute")["first_stage"]}
    rows = [
        [title, *(f"{run[length][f'{engine} ms']:.2f} ({run[length][f'{engine} times']:.1f} ×)" for length in LENGTHS)]
        for title, engine in (
            ("LightGBM's `predict`", "LightGBM"),
            ("ONNX Runtime's tree ensemble", "ONNX Runtime"),
            ("compiled", "compiled"),
        )
    ]
    return table(["ms (times as fast as LightGBM)", *(f"{length} candidates" for length in LENGTHS)], rows)


def connection():
    """Decision 5: the connection beside uvicorn's."""
    run = result("transport")
    kinds = ("ours", "httptools", "h11")
    rows = [
        [
            "requests a second, 10 candidates, 4 callers",
            *(f"{run['connection'][kind]['per_second']:,.0f}" for kind in kinds),
        ]
    ]
    for title, figure, form, missing in (
        ("half a head: seconds until it is closed", "half a head, seconds until it is closed", ".0f", "open after 5"),
        ("a head without end: MB held", "head without end, MB held", ".0f", ""),
        ("trailer fields without end: MB held", "trailers without end, MB held", ".0f", ""),
        ("`Host` twice: status", "Host twice", "d", ""),
        ("no `Host`: status", "no Host", "d", ""),
        ("`Transfer-Encoding: gzip, chunked`: status", "Transfer-Encoding: gzip, chunked", "d", ""),
        ("`Content-Length` and `chunked`: status", "Content-Length and chunked", "d", ""),
        ("a body that is cut off: status", "body cut off", "d", "no answer"),
    ):
        found = [run["answers"][kind][figure] for kind in kinds]
        rows.append([title, *(missing if value is None else f"{value:{form}}" for value in found)])
    return table(["", "ours", "uvicorn over httptools", "uvicorn over h11"], rows)


def limit():
    """Decision 5: the limit on connections."""
    run = result("transport")["limit"]
    rows = [
        [f"{title}: {said}", *(run[kind][group].get(answer, 0) for kind in ("ours", "limit_concurrency", "httptools"))]
        for title, group in (("a connected caller", "who is there"), ("new callers", "newcomers"))
        for said, answer in (
            ("ranked (200)", "200"),
            ("429", "429"),
            ("503", "503"),
            ("connection closed", "closed"),
        )
    ]
    rows = [row for row in rows if any(row[1:])]
    waits = [f"{run[kind]['slowest newcomer, seconds']:.1f}" for kind in ("ours", "limit_concurrency", "httptools")]
    rows.append(["new callers: longest wait, seconds", *waits])
    return table(["requests", "ours", "uvicorn's `limit_concurrency`", "no limit"], rows)


def accept():
    """Decision 5: connections taken in turns."""
    run = result("transport")["accept"]
    ways = [run["ours"], run["plain_accept"]]
    return table(
        ["2 workers, 4 callers, 100 candidates", "in turns", "at once"],
        [
            ["requests a second", *(f"{way['per_second']:.0f}" for way in ways)],
            ["share of the work of the busier worker", *(f"{100 * way['busiest_worker']:.0f} %" for way in ways)],
        ],
    )


def shedding():
    """Decision 5: refusing early."""
    run = result("transport")["shedding"]
    ways = [run["ours"], run["no_shedding"]]
    return table(
        ["64 callers that do not wait, 100 candidates", "refused early", "refused in the application"],
        [["rankings a second", *(f"{way['per_second']:.0f}" for way in ways)]],
    )


def rules():
    """Decision 6: in how many folds each rule takes the list-relative columns."""
    choices = result("shipped_choices")["choices"]
    takes = {
        "better mean: the decision": lambda one: one["mean"] > 0.0,
        "better by more than 0.002": lambda one: one["mean"] > 0.002 or one["low"] > 0.0,
        "one standard error": lambda one: one["mean"] > (one["high"] - one["low"]) / 2 / 1.96,
        "95 % interval above 0": lambda one: one["low"] > 0.0,
    }
    rows = []
    for rule, take in takes.items():
        counts = [[take(fold["comparisons"][0]) for fold in choices[name].values()] for name in SETS]
        rows.append([rule, *(f"{sum(taken)} of {len(taken)}" for taken in counts)])
    return table(["rule for the columns", *SETS], rows)


def meanings():
    """Decision 6: what ``auto`` means on planted data."""
    found = {(one["data"], one["default"]): one["seeds"] for one in result("choice")["defaults"]}
    kinds = {"plain LightGBM": "plain", "LightGBM + relative": "relative", "QILCM": "qilcm", "QILCM2": "qilcm2"}
    rows = [
        [data, *(found.get((data, kind), 0) for kind in kinds.values())]
        for data in ("without a shift", "with planted shifts")
    ]
    return table(["data", *kinds], rows)


def columns(found):
    """Decision 17: what each rule for the list-relative columns loses, by the queries that it sees."""
    of = {(one["rule"], one["view"]): one for one in found["rules"]}
    rules, views = (list(dict.fromkeys(key[n] for key in of)) for n in (0, 1))
    rows = []
    for rule in rules:
        last = of[rule, views[-1]]
        mean, low, high = (f"{1000 * figure:+.2f}" for figure in last["over_before"])
        regrets = [f"{1000 * of[rule, view]['mean_regret']:.2f}" for view in views]
        rows.append([rule, *regrets, f"{last['worst_loss']:.3f}", last["taken"], f"{mean} [{low}, {high}]"])
    return table(["rule", *views, "worst loss", f"taken of {len(found['gains'])}", "gain over the rule before"], rows)


def gains_by_columns(found):
    """Decision 17: what a rule sees on each public table, and what that is worth."""
    rows = []
    for name in dict.fromkeys(one["table"] for one in found["gains"]):
        splits = [one for one in found["gains"] if one["table"] == name]
        means = [sum(one[view] for one in splits) / len(splits) for view in ("both, 5 folds", "test")]
        taken = sum(one["both, 5 folds"] > 0.0 for one in splits)
        rows.append([name, *(f"{mean:+.4f}" for mean in means), f"{taken} of {len(splits)}"])
    return table(["table", "both, 5 folds", "test", "taken"], rows)


def ways_of_taking(found):
    """Decision 17: what each way of taking columns of numbers and of categories loses; the most on one table."""
    rows = []
    for one in found["steps"]:
        worst = max(one["tables"], key=one["tables"].__getitem__)
        car = f"{1000 * one['tables']['car']:.2f}"
        rows.append(
            [one["way"], f"{1000 * one['mean_regret']:.2f}", car, f"{1000 * one['tables'][worst]:.2f} ({worst})"]
        )
    return table(["way", "mean regret", "on `car`", "most, on one table"], rows)


def over_scanner():
    rows = result("scanner")["table"]
    return {(row["form"], row["candidates"], row["reader"]): row["over_scanner"] for row in rows}


def scanner():
    """Decision 8: libraries beside the scanner."""
    over = over_scanner()
    rows = [
        [f"{called}, {length} candidates", *(f"{over[form, length, reader]:.1f}" for reader in READERS)]
        for form, called in FORMS.items()
        for length in LENGTHS
    ]
    return table(["time over the scanner's", *READERS], rows)


def supervisor():
    """Decision 9: the same faults under three supervisors."""
    faults = result("supervisor")["faults"]
    kinds = ("ours", "uvicorn", "gunicorn")
    rows = []
    for title, (fault, figure, form) in FAULTS.items():
        values = [faults[fault][kind][figure] for kind in kinds]
        rows.append([title, *("never" if value is None else f"{value:{form}}" for value in values)])
    return table(["fault", *kinds], rows)


def scrapes():
    """Decision 10: metrics by messages and by files."""
    ways = result("scrapes")["ways"]
    rows = [
        [title, *(f"{ways[way][figure]:{form}}" for way in ("ours", "prometheus_client"))]
        for title, (figure, form) in SCRAPES.items()
    ]
    return table(["median", "ours", "prometheus_client"], rows)


def goals():
    """Decision 21: ways to rank for two goals."""
    rows = []
    for name, measured in result("goals")["sets"].items():
        ways = measured["ways"]
        volumes = [f"{ways[way]['hypervolume']:.4f}" if way in ways else "" for way in WAYS]
        mean, low, high = ways["shares"]["hypervolume_less_eleven"]
        cpu = [f"{100 * ways[way]['cpu_of_eleven']:.0f} %" for way in ("shares", "conditioned")]
        rows.append([GOALS[name], *volumes, f"{mean:+.4f} ({low:+.4f} to {high:+.4f})", *cpu])
    head = ["hypervolume", *WAYS.values(), "shares less eleven fits", "CPU time of shares", "of one model"]
    return table(head, rows)


TABLES = {
    "0002-select-first-stage-by-folds": (selection,),
    "0004-compiled-walks": (engines,),
    "0005-transport": (connection, limit, accept, shedding),
    "0006-what-auto-means": (rules, meanings),
    "0008-json-scanner": (scanner,),
    "0009-supervisor": (supervisor,),
    "0010-merged-metrics": (scrapes,),
    "0017-rule-for-columns": (
        lambda: columns(result("columns")),
        lambda: ways_of_taking(result("columns")),
        lambda: gains_by_columns(result("columns")),
    ),
    "0021-goals-are-combined-by-shares": (goals,),
}


@pytest.mark.parametrize("decision", TABLES)
def test_the_tables_are_the_measurements(decision):
    assert blocks(page(f"docs/decisions/{decision}.md")) == [made() for made in TABLES[decision]]


def test_the_rule_for_columns_has_the_least_regret_of_those_that_compare_on_one_table():
    for view in ("both, 2 folds", "both, 5 folds"):
        regrets = {one["rule"]: one["mean_regret"] for one in result("columns")["rules"] if one["view"] == view}
        del regrets["mean, shrunk towards other tables, > 0"], regrets["always"]
        assert regrets["mean > 0"] == min(regrets.values())


def test_where_the_columns_are_always_taken_more_is_lost_on_tables_of_many_queries():
    lost = {"mean > 0": [], "always": []}
    for one in result("columns")["gains"]:
        if one["table"] not in ("ohsumed", "mslr"):
            lost["always"].append(max(0.0, -one["test"]))
            lost["mean > 0"].append(abs(one["test"]) * ((one["both, 5 folds"] > 0.0) != (one["test"] > 0.0)))
    means = {rule: f"{1000 * sum(values) / len(values):.2f}" for rule, values in lost.items()}
    assert f"{means['mean > 0']} against {means['always']}" in page("docs/decisions/0017-rule-for-columns.md")


def test_no_choice_of_the_first_stage_differs_beyond_two_standard_errors():
    for name in SETS:
        for one in result(f"selection_{name}")["seeds"]:
            assert abs(one["folds_less_valid"]) < 2 * one["standard_error"]


def test_the_fits_followed_the_rule_for_the_columns():
    for folds in result("shipped_choices")["choices"].values():
        for fold in folds.values():
            assert fold["relative"] == (fold["comparisons"][0]["mean"] > 0.0)


def test_the_scanner_is_kept_for_long_lists_of_rows_by_name():
    over = over_scanner()
    assert min(over["rows_by_name", length, library] for length in (100, 1000) for library in READERS[1:]) >= 1.3


def test_where_libraries_are_as_fast_or_faster():
    over = over_scanner()
    assert over["rows_by_name", 10, "msgspec"] == pytest.approx(1.0, abs=0.15)
    assert max(over["matrix", length, "simdjson"] for length in LENGTHS) < 1
    assert min(over["matrix", length, other] for length in (100, 1000) for other in ("msgspec", "pydantic_core")) >= 1.3
    assert max(over["matrix", 10, library] for library in READERS[1:]) < 1


def test_merging_by_messages_costs_less_than_files():
    ways = result("scrapes")["ways"]
    for figure in ("request_us", "scrape_after_ms", "left_kib"):
        assert ways["ours"][figure] < ways["prometheus_client"][figure]
