"""The tables of ``docs/tables.md`` are the committed results."""

from collections import Counter
from statistics import median

from benchmarks.tables import builders, context
from benchmarks.tables.entrants import DEFAULT, ENTRANTS, RANKERS
from support.pages.figure_blocks import blocks, gain, page, result, table
from support.pages.quality import MISSING

PAGE = page("docs/tables.md")
FOUND = result("tables")
ON_COLUMNS = [row for row in result("context")["tables"] if row["part"] == context.ON_COLUMNS]
TITLES = {
    "lambdarank": "LightGBM",
    "lambdarank + relative": "+ relative",
    "xendcg": "xendcg",
    "xendcg + relative": "+ relative",
    "xgboost": "XGBoost",
    "catboost": "CatBoost",
    "logit": "logit",
    "mlp": "MLP",
    DEFAULT: "default fit",
}
"""Entrants by the names that the page explains."""


def sources():
    """Where the tables come from; test lists in parentheses."""
    lists = {row["table"]: row["test_queries"] for row in FOUND["tables"]}
    names = {}
    for name, of in builders.TABLES.items():
        names.setdefault((of.source, of.licence), []).append(f"`{name}` ({lists[name]:,})")
    rows = [[", ".join(named), *of] for of, named in names.items()]
    return table(["table (test lists)", "source: a list", "licence"], rows)


def defaults():
    """A default fit beside the picked ranker of an afternoon, and what it ships."""
    rows = []
    for row in FOUND["tables"]:
        of = row["entrants"]
        if DEFAULT not in of:
            continue

        ships = ", ".join(f"{count} {name}" for name, count in Counter(row["ships"]).most_common())
        rows.append(
            [
                f"`{row['table']}`",
                gain(row["default_over_afternoon"], 4),
                "{wall_s:.0f}, {cpu_s:.0f}".format(**of[DEFAULT]),
                ships,
            ]
        )
    head = ["table", "default fit over picked", "seconds by one thread, CPU", "ships"]
    return table(head, rows)


def entrants():
    """NDCG of every entrant on every table, and what it loses on average."""
    rows = []
    for row in FOUND["tables"]:
        of = row["entrants"]
        figures = [f"{of[name]['ndcg@10']:.4f}" if name in of else MISSING for name in TITLES]
        rows.append([f"`{row['table']}`", *figures])
    together = FOUND["all"]
    for title, figure, form in (("mean regret", "mean_regret", ".4f"), ("mean rank", "mean_rank", ".1f")):
        rows.append([title, *(f"{together[figure][name]:{form}}" for name in TITLES)])
    return table(["NDCG@10", *TITLES.values()], rows)


def networks():
    """What second stages gain on LightGBM with the columns, and the seconds of a fit."""
    rows = []
    kinds = list(context.specs())
    for row in ON_COLUMNS:
        if row["splits"] == 5:
            first = row["ndcg@10"][context.FIRST]
            gains = [f"{row['ndcg@10'][name] - first:+.4f}" for name in kinds]
            rows.append([f"`{row['table']}`", f"{first:.4f}", *gains])
    seconds = [f"{median(row['cpu_s'][name] for row in ON_COLUMNS):.0f}" for name in kinds]
    rows.append(["CPU seconds of a fit, median", "", *seconds])
    return table(["table", "first stage", *kinds], rows)


def test_the_tables_that_are_left_out_have_two_splits():
    assert {row["splits"] for row in ON_COLUMNS} == {2, 5}
    assert sum(row["splits"] == 2 for row in ON_COLUMNS) == 9


def test_the_tables_are_the_committed_results():
    assert blocks(PAGE) == [defaults(), entrants(), networks(), sources()]


def test_every_entrant_and_table_is_there():
    assert {*TITLES} == {*RANKERS, DEFAULT} <= {*ENTRANTS}
    assert {row["table"] for row in FOUND["tables"] if DEFAULT in row["entrants"]} == {*builders.TABLES}
    assert all(row["splits"] == [1, 2, 3, 4, 5] for row in FOUND["tables"])


def test_the_answer_has_the_figures_of_all_tables():
    together = FOUND["all"]
    regret, rank = together["mean_regret"], together["mean_rank"]
    others = [name for name in TITLES if name != DEFAULT]
    assert rank[DEFAULT] < min(rank[name] for name in others)
    assert f"loses {regret[DEFAULT]:.4f}" in PAGE
    assert f"loses {min(regret[name] for name in others):.4f}" in PAGE
    assert f"gains {together['mean_gain']:.4f}" in PAGE
    assert f"better on {together['shown_better']} tables, and worse on {together['shown_worse']}" in PAGE


def test_the_gains_of_networks_in_the_text_are_those_that_are_shown():
    gains = {
        (row["part"], row["table"], one["ranker"], one["over"]): one["gain"][0]
        for row in result("context")["tables"]
        for one in row["gains"]
        if one["p_holm"] < 0.05
    }
    on_columns = {key[1:]: gain for key, gain in gains.items() if key[0] == context.ON_COLUMNS}
    assert set(on_columns) == {("tuna", name, context.FIRST) for name in ("qilcm", "qilcm2")}
    alone = {key[1:]: gain for key, gain in gains.items() if key[0] == context.ALONE}
    of_qilcm = {
        table: gain for (table, ranker, over), gain in alone.items() if (ranker, over) == ("qilcm", context.FIRST)
    }
    assert set(of_qilcm) == {"car", "tuna", "ketchup"}
    parts = [
        alone["tuna", "qilcm", "qilcm without attention"],
        alone["tuna", "qilcm with confusion loss", "qilcm"],
        alone["car", "dcm", "qilcm"],
    ]
    text = PAGE.partition("- **Reading")[2].partition("\n\n")[0]
    for value in (*on_columns.values(), *of_qilcm.values(), *parts):
        assert f"{abs(value):.4f}" in text
    (tuna,) = (row["cpu_s"] for row in ON_COLUMNS if row["table"] == "tuna")
    assert round(tuna["qilcm2"] / tuna["qilcm"]) == 3
