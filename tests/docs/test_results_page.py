"""The tables of ``docs/results.md`` are the committed results."""

from listwright.training.recipe import config
from support.pages.figure_blocks import ROOT, blocks, gain, interval, page, result, table
from support.pages.quality import DEMO, MISSING, PAIRS, QUALITY, RANKERS, SETS, quality

PAGE = page("docs/results.md")
SPECIALISTS = ("mq2008", "ohsumed", "planted", "planted-hidden")
WITHOUT_ORACLE = "planted-hidden"
SHOWN_K = 5
BUDGETED = ("mslr-sample", "demo", "flat")
READERS = ("listwright, not compiled", "scikit-learn", "polars, into strings")
TABLE_READERS = ("listwright", "polars and NumPy")
WAYS = ("row_order", "shared")
"""In which candidates of equal scores are ranked."""


def test_trials_seeds_and_folds_of_the_real_sets():
    (trials,) = {found["command"].partition("--tune ")[2].split()[0] for found in QUALITY.values()}
    (folds,) = {found["command"].partition("--folds ")[2].split()[0] for found in QUALITY.values()}
    (first,) = {config.load(name).first_stage.trials for name in SETS}
    (seeds,) = {found["seeds"] for found in QUALITY.values()}
    assert (len(folds.split(",")), seeds) == (5, 5)
    text = " ".join(PAGE.split())
    assert f"{first} trials for each LightGBM" in text
    assert f"{trials} for each network" in text


def paired():
    """Paired gains."""
    rows = []
    for name, found in QUALITY.items():
        over = {(one["method"], one["rival"]): one for one in found["over_lambdamart"]}
        rows.append([name, found["test_queries"], *(interval(over[pair]) for pair in PAIRS)])
    columns = interval(DEMO["default_over_plain"])  # which the demo ships
    rows.append(["demo", DEMO["queries"], columns, MISSING, columns, "the same ranker"])
    pairs = (f"{RANKERS[method]} over {RANKERS[rival]}" for method, rival in PAIRS)
    return table(["paired", "test queries", *pairs], rows)


def latency():
    """Milliseconds of the service by format."""
    measured = {(row["candidates"], row["format"]): row for row in result("floor")["table"]}
    rows = []
    for count in (10, 100, 1000):
        cells = [f"{measured[count, 'npy']['in_process_ms']:.1f}"]
        for request_format in ("npy", "columnar JSON", "rows by name"):
            row = measured[count, request_format]
            cells.append(f"{row['p50_ms']:.1f} ({row['p99_ms']:.1f}), {row['over_floor']:.2f} ×")
        rows.append([count, *cells])
    return table(["candidates", "in process", "`.npy`", "columnar JSON", "rows by name"], rows)


def speed():
    """Other figures of speed and memory, with the commands that measure them."""
    compute, service, parse, parquet = (result(name) for name in ("compute", "service", "parse", "table"))
    (first,) = (row for row in compute["first_stage"] if row["candidates"] == 100)
    start = service["start_up"]
    assert start["bundle"] == "demo/1"
    rows = [
        [
            "compiled first stage, speed over LightGBM's own `predict`, 100 candidates",
            f"{first['compiled times']:.1f} ×",
            f"`{compute['command']}`",
        ],
        [
            "start of the service until it is ready, demo bundle, s",
            f"{start['ready_s']:.1f}",
            f"`{service['command']}`",
        ],
        ["resident memory of a worker then, MB", f"{start['resident_mb_when_ready']:.0f}", "the same"],
        [
            f"LETOR text of {parse['features']} features, rows a second",
            f"{parse['whole_file']['listwright']['rows_per_second']:,}",
            f"`{parse['command']}`",
        ],
        [
            "its speed over our reader without a C compiler, scikit-learn's, and polars with one thread",
            ", ".join(f"{parse['times_of_listwright'][name]:.1f} ×" for name in READERS),
            "the same",
        ],
        [
            "Parquet of 1.4 million rows, 26 features, checked and split: CPU time over ten lines of polars and NumPy",
            f"{parquet['listwright_over']['polars and NumPy']:.1f} ×",
            f"`{parquet['command']}`",
        ],
        [
            "its peak memory, and that of these ten lines, over the matrix",
            ", ".join(f"{parquet['readers'][name]['memory_over_matrix']:.1f} ×" for name in TABLE_READERS),
            "the same",
        ],
    ]
    return table(["what", "figure", "command"], rows)


def specialists():
    """What a choice among specialists gains."""
    rows = []
    for name in SPECIALISTS:
        cells = [MISSING] * 4 if name == WITHOUT_ORACLE else oracle(name)
        routing = result(f"routing_{name}")
        gains = [interval(routing[gain]) for gain in ("gain_over_generalist", "mixture_over_hard_route")]
        rows.append([name, *cells, f"{routing['coverage']:.0%}", *gains])
    head = ["data", "LightGBM", "one linear ranker", f"K = {SHOWN_K}: random / perfect choice", "break-even"]
    return table([*head, "routed", "gain over QILCM", "mixture over best guess"], rows)


def oracle(name):
    """Rankers without a choice, a random and a perfect choice, and the accuracy at which a choice breaks even."""
    found = result(f"oracle_{name}")
    (curve,) = (curve for curve in found["curves"] if curve["specialists"] == SHOWN_K)
    even = curve["break_even"]
    return [
        f"{found['lambdamart']['mean']:.3f}",
        f"{found['single_linear_ranker']['mean']:.3f}",
        f"{curve['mean_specialist']['mean']:.3f} / {curve['oracle']['mean']:.3f}",
        f"{even['mean']:.0%} [{even['low']:.0%}, {even['high']:.0%}]",
    ]


def test_what_a_router_adds_to_a_request_or_saves():
    (row,) = (row for row in result("routing")["table"] if row["candidates"] == 100)
    added, saved = (f"{100 * row[column]:.0f} %" for column in ("added", "saved_where_routed"))
    text = " ".join(PAGE.split())
    assert f"adds {added}" in text
    assert f"saves {saved}" in text


def budgeted():
    """A fit in its default time, on sets that the page of the public tables does not have."""
    rows = []
    for row in result("budgeted")["sets"]:
        if row["set"] in BUDGETED:
            figures = [f"{row[way]['ndcg@10']:.3f}" for way in ("lightgbm", "lightgbm + relative", "fit")]
            over = gain(row["fit"]["over lightgbm + relative"])
            rows.append([row["set"], len(row["fit"]["defaults"]), row["test_queries"], *figures, over])
    return table(
        ["NDCG@10", "fits", "test queries", "LightGBM", "+ relative", "fit", "fit over + relative"],
        rows,
    )


def test_a_fit_without_a_bound_takes_longer_and_gains_nothing_that_is_shown():
    rows = [row for row in result("budgeted")["sets"] if "fit without a bound" in row]
    assert {row["set"] for row in rows} == {"ohsumed", "airline"}
    times = sorted(row["fit without a bound"]["seconds"] / row["fit"]["seconds"] for row in rows)
    assert [f"{times_longer:.0f}" for times_longer in times] == ["7", "10"]
    assert all(low < 0 < high for _, low, high in (row["fit"]["over fit without a bound"] for row in rows))


def test_the_tables_are_the_committed_results():
    first = [quality(), paired(), budgeted()]
    figures = [*first, latency(), speed(), specialists()]
    assert blocks(PAGE) == figures


def test_what_equal_scores_change():
    values = {(found["recipe"], found["chosen_first"]): found["ndcg@10"] for found in result("ties")["sets"]}
    by_rows, shared = ({key: of[f"stopped by {way}, measured by {way}"] for key, of in values.items()} for way in WAYS)
    assert max(abs(by_rows[name, False] - shared[name, False]) for name in SETS) < 0.003
    assert [f"{of['airline', True]:.3f}" for of in (by_rows, shared)] == ["0.798", "0.461"]


def test_a_result_is_of_as_many_seeds_as_it_takes():
    for found in QUALITY.values():
        assert found["seeds"] >= 5
        assert {one["metric"] for one in found["over_lambdamart"]} == {"ndcg@10"}


def test_the_router_pays_only_where_a_feature_gives_the_groups_away():
    gains = {name: result(f"routing_{name}")["gain_over_generalist"]["low"] for name in SPECIALISTS}
    assert {name for name, low in gains.items() if low > 0} == {"planted"}
    assert {name for name in SPECIALISTS if result(f"routing_{name}")["coverage"] > 0} == {"planted"}


def test_pages_stand_beside_the_results():
    shown = [f"oracle_{name}" for name in SPECIALISTS if name != WITHOUT_ORACLE]
    for name in (*shown, *(f"routing_{name}" for name in SPECIALISTS)):
        text = (ROOT / "benchmarks" / "results" / f"{name}.html").read_text(encoding="utf-8")
        assert result(name)["sentence"] in text.replace("&#39;", "'").replace("&gt;", ">")
        assert str(ROOT) not in text
