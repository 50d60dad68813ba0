"""``docs/when-a-second-stage-pays.md`` says what the code does and what the committed run found."""

import json
import re

from benchmarks.science import curve
from benchmarks.science import diagnose as benchmark
from listwright.ranking.relative import CATEGORY_KINDS, NUMBER_KINDS, WITHIN_KINDS, RelativeColumn
from listwright.training import diagnosis
from listwright.training import diagnosis as diagnosis_text
from listwright.training.data.load import load
from listwright.training.diagnosis import quick
from listwright.training.recipe import config
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
        ["training lists", "seeds", "LightGBM", *(f"{curve.TITLES[name]} gains" for name in curve.COLOURS)],
        [
            [
                f"{row['lists']:,}",
                row["seeds"],
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
            ["list-relative columns", *(text(ATTEMPTS[name, "plain"], -1) for name in ("airline", "tafeng"))],
            ["softmax loss", *(text(ATTEMPTS[name, "softmax_trees"]) for name in ("airline", "tafeng"))],
            ["QILCM2 as second stage", text(ATTEMPTS["airline", "blocks"]), text(second)],
        ],
    )


def test_one_column_is_the_best_ranker_of_the_promotion():
    """Of those that saw many lists; and a poor one before."""
    by_column, rows = CURVE["by_one_column"], CURVE["rows"]
    assert f"{by_column['promotion']['buyers_7']:.3f}" in PAGE
    highest = max(row["promotion"][name]["over_plain"][0] for row in rows for name in curve.COLOURS)
    assert f"{highest:.3f}" in PAGE
    many = [row["promotion"][name]["ndcg@10"] for row in rows if row["lists"] >= 8_000 for name in curve.TITLES]
    assert max(many) < by_column["promotion"]["buyers_7"]
    assert by_column["usual"]["buyers_7"] < 0.5 * min(row["usual"]["plain"]["ndcg@10"] for row in rows)


def tables():
    return [what_gains(), budget(), gains_by_lists("usual"), benchmark.figures(RUN["sets"]) + "\n"]


def test_the_tables_are_the_codes_and_the_committed_runs():
    assert blocks(PAGE) == tables()


def test_the_borders_of_shares_are_the_codes():
    partly, mostly = diagnosis_text.PARTLY, diagnosis_text.MOSTLY
    rows = re.findall(r"^\| (.*?) \|", PAGE.partition("| ICC |")[2].partition("\n\n")[0], flags=re.MULTILINE)
    assert rows[-3:] == [f"from {mostly}", f"{partly} to {mostly}", f"below {partly}"]
