"""``docs/when-a-second-stage-pays.md`` says what the code does and what the committed run found."""

import json
import re

from benchmarks.tables import context
from listwright.ranking.relative import CATEGORY_KINDS, NUMBER_KINDS, WITHIN_KINDS, RelativeColumn
from listwright.training.data.load import load
from listwright.training.pipeline import diagnosis
from listwright.training.pipeline import diagnosis as diagnosis_text
from listwright.training.pipeline.diagnosis import quick
from listwright.training.recipe import config
from listwright_lab.science import curve
from listwright_lab.science import diagnose as benchmark
from support.pages.figure_blocks import blocks, result, table

PAGE = benchmark.PAGE.read_text(encoding="utf-8")
RUN = json.loads((benchmark.machine.RESULTS / "diagnose.json").read_text(encoding="utf-8"))


def test_the_benchmark_writes_the_table():
    block = PAGE.rpartition(benchmark.BEGIN)[2].partition(benchmark.END)[0].strip()
    assert list(RUN["sets"]) == [*benchmark.PLANTED, *benchmark.REAL]
    assert benchmark.written(PAGE, block) == PAGE


def test_planted_sets_gain_by_what_was_planted():
    shifted, context = RUN["sets"]["shifted"], RUN["sets"]["context"]
    assert shifted["relative_columns"]["verdict"] == "gain"
    assert min(spread["between"] for spread in shifted["features"]) >= 0.5
    assert max(spread["between"] for spread in context["features"]) < 0.1
    assert context["second_stage"]["verdict"] == "gain"
    assert context["second_stage"]["mean"] > context["relative_columns"]["mean"]


def test_the_columns_have_their_names():
    columns = [
        *(RelativeColumn(feature="price", kind=kind) for kind in NUMBER_KINDS),
        *(RelativeColumn(feature="carrier", kind=kind) for kind in CATEGORY_KINDS),
        *(RelativeColumn(feature="price", kind=kind, within="carrier") for kind in WITHIN_KINDS),
    ]
    assert [column.name for column in columns if f"| `{column.name}` |" not in PAGE] == []


def budget():
    """Bounds of the quick rankers."""
    recipe = config.load("demo")
    small = quick(recipe, load(recipe, []).train)
    settings, (few, many) = small.first_stage.settings, diagnosis.EPOCHS
    return table(
        ["bound", "value"],
        [
            ["training rows for each minute, at most", f"{diagnosis.MOST_ROWS:,}"],
            ["leaves and trees of LightGBM, at most", f"{settings.num_leaves}, {small.first_stage.max_trees}"],
            ["encoder width and epochs of QILCM2", f"{small.model.encoder_width}, {few} to {many}"],
            ["folds", diagnosis.FOLDS],
            ["gain in NDCG that an interval must not reach, to rule out a gain", diagnosis_text.WORTHWHILE],
        ],
    )


CURVE = result("curve")


def gains_by_lists(period):
    """What is gained over LightGBM, by the number of training lists."""

    def gain(row, name):
        mean, low, high = row[period][name]["over_plain"]
        return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"

    return table(
        ["training lists", "LightGBM", *(f"{curve.TITLES[name]} gains" for name in curve.COLOURS)],
        [
            [
                f"{row['lists']:,}",
                f"{row[period]['plain']['ndcg@10']:.3f}",
                *(gain(row, name) for name in curve.COLOURS),
            ]
            for row in CURVE["rows"]
        ],
    )


ATTEMPTS = {(one["set"], row["attempt"]): row["gain"] for one in result("attempts")["sets"] for row in one["attempts"]}


def what_gains():
    """What a fit can add to LightGBM, and what each is worth where lists are few and many."""
    second = next(row for row in CURVE["rows"] if row["lists"] == 8_000)["usual"]["qilcm2"]["over_plain"]

    def text(gain, sign=1):
        mean, low, high = gain
        return f"{sign * mean:+.3f} ± {(high - low) / 2:.3f}"

    return table(
        ["", "airline, 370 lists", "Ta Feng, 8,000 lists"],
        [
            [
                "list-relative columns of numbers",
                *(text(ATTEMPTS[name, "plain"], -1) for name in ("airline", "tafeng")),
            ],
            ["softmax loss", *(text(ATTEMPTS[name, "softmax_trees"]) for name in ("airline", "tafeng"))],
            ["QILCM2 as second stage", text(ATTEMPTS["airline", "blocks"]), text(second)],
        ],
    )


def test_every_number_of_lists_has_five_seeds():
    assert {row["seeds"] for row in CURVE["rows"]} == {5}
    assert "five seeds" in PAGE


def test_one_column_is_the_best_ranker_of_the_promotion():
    """Of those that saw many lists; and a poor one before."""
    by_column, rows = CURVE["by_one_column"], CURVE["rows"]
    assert f"{by_column['promotion']['buyers_7']:.3f}" in PAGE
    highest = max(row["promotion"][name]["over_plain"][0] for row in rows for name in curve.COLOURS)
    assert f"{highest:.3f}" in PAGE
    many = [row["promotion"][name]["ndcg@10"] for row in rows if row["lists"] >= 8_000 for name in curve.TITLES]
    assert max(many) < by_column["promotion"]["buyers_7"]
    assert by_column["usual"]["buyers_7"] < 0.5 * min(row["usual"]["plain"]["ndcg@10"] for row in rows)


CONTEXT, PREDICTIONS = result("context"), result("predictions")


def over_lightgbm():
    """What rankers gain over LightGBM alone."""
    rows = [
        [f"`{row['table']}`", f"{row['test_queries']:,}", *(interval_text(of) for of in row["gains"].values())]
        for row in CONTEXT["over_lightgbm"]
        if not row["persons_apart"]
    ]
    return table(["table", "test lists", "MLP", "QILCM", "the columns", "QILCM on the columns"], rows)


def interval_text(gain):
    mean, low, high = gain
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"


def test_the_columns_gain_with_persons_apart_what_the_page_says():
    apart = {row["table"]: row["gains"][context.COLUMNS] for row in CONTEXT["over_lightgbm"] if row["persons_apart"]}
    sentence = PAGE.partition("same part of the split")[2].partition("\n\n")[0]
    shown = {name: gain for gain, name in re.findall(r"(0\.\d{4}) on `(\w+)`", sentence)}
    assert shown == {name: f"{mean:.4f}" for name, (mean, _, _) in apart.items()}


def test_counts_of_the_list_gain_on_vehicles_and_those_of_another_list_do_not():
    (car,) = (row for row in CONTEXT["tables"] if (row["part"], row["table"]) == (context.COMPOSITION, "car"))
    gains = {one["ranker"]: interval_text(one["gain"]) for one in car["gains"]}
    text = " ".join(PAGE.partition("## The composition of a list")[2].split())
    assert gains[context.COUNTS] in text
    assert gains[context.SHUFFLED] in text


def predictions():
    """What a diagnosis says, and what the columns gain on the test lists."""
    marks = {True: "right", False: "wrong"}
    rows = []
    for row in PREDICTIONS["tables"]:
        quick = row["relative_columns"]
        said = [quick["mean"], quick["low"], quick["high"]]
        right = marks[row["by_rankers"] == row["gains"]]
        rows.append([f"`{row['table']}`", interval_text(said), interval_text(row["test"]), right])
    return table(["table", "gain by the columns in `diagnose`", "on test lists", "`diagnose` is"], rows)


def test_hits_of_the_diagnoses_are_counted():
    right, of = PREDICTIONS["right"], PREDICTIONS["of"]
    assert (of, PREDICTIONS["tables"][0]["split"]) == (15, 1)
    for name in ("by_rankers", "by_features"):
        assert f"{right[name]} of {of}" in PAGE


def test_the_composition_of_the_lists_of_vehicles_tells_who_was_asked():
    (car,) = (row for row in CONTEXT["tables"] if (row["part"], row["table"]) == (context.COMPOSITION, "car"))
    assert max(car["auc"], key=car["auc"].__getitem__) == "coml5"
    assert f"AUC of {car['auc']['coml5']:.2f}" in PAGE


def tables():
    return [
        over_lightgbm(),
        what_gains(),
        budget(),
        predictions(),
        gains_by_lists("usual"),
        benchmark.figures(RUN["sets"]) + "\n",
    ]


def test_the_tables_are_the_codes_and_the_committed_runs():
    assert blocks(PAGE) == tables()


def test_the_borders_of_shares_are_the_codes():
    partly, mostly = diagnosis_text.PARTLY, diagnosis_text.MOSTLY
    rows = re.findall(r"^\| (.*?) \|", PAGE.partition("| ICC |")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert rows[-3:] == [f"from {mostly}", f"{partly} to {mostly}", f"below {partly}"]
