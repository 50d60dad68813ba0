"""The figures of ``docs/tafeng.md`` are the committed ones."""

from support.pages.figure_blocks import blocks, gain, page, result, table

FOUND = result("tafeng")
PAGE = page("docs/tafeng.md")
TITLES = {"usual": "usual days", "promotion": "promotion", "after the rush": "its last five days"}
RANKERS = ("buyers_7", "lambdarank", "lambdarank without subclass", "softmax", "softmax without subclass", "fit")
RANKED = {name: of["rankers"] for name, of in FOUND["periods"].items()}


def rankers():
    """Every ranker in every period: its mean, the lowest and highest draw, and what a fit gains over it."""
    rows = []
    for ranker in RANKERS:
        cells = []
        for period in TITLES:
            of = RANKED[period][ranker]
            low, high = min(of["by_draw"]), max(of["by_draw"])
            draws = "" if low == high else f" ({low:.3f} to {high:.3f})"
            cells += [f"{of['ndcg@10'][0]:.3f}{draws}", gain(of["fit_gains"]) if "fit_gains" in of else ""]
        rows.append([ranker, *cells])
    return table(["", *(cell for title in TITLES.values() for cell in (title, "a fit gains"))], rows)


def test_the_table_is_the_committed_result():
    assert blocks(PAGE) == [rankers()]


def test_the_promotion_is_as_the_page_says():
    days = {row["day"]: row for row in FOUND["promotion_by_day"]}
    assert [days[f"2001-02-{day}"]["median_price"] for day in (15, 16, 28)] == [25, 13, 13]
    shares = {
        (first, last): [round(100 * days[f"2001-02-{day}"]["share"]) for day in range(first, last + 1)]
        for first, last in ((16, 18), (19, 19), (20, 23), (24, 28))
    }
    bounds = {days: (min(values), max(values)) for days, values in shares.items()}
    assert bounds == {(16, 18): (9, 10), (19, 19): (31, 31), (20, 23): (44, 50), (24, 28): (6, 9)}


def test_several_draws_are_in_the_intervals():
    assert FOUND["draws"] >= 5
    assert all(len(of["by_draw"]) == FOUND["draws"] for period in RANKED.values() for of in period.values())


def test_what_a_fit_gains():
    """Over the best of the others: something on usual days, nothing that is shown in the promotion."""
    gains = {period: RANKED[period]["softmax without subclass"]["fit_gains"] for period in ("usual", "promotion")}
    assert gains["usual"][1] > 0 > gains["promotion"][1]
    assert f"{gains['usual'][0]:.3f}" == "0.006"


def test_the_category_of_many_values_harms_the_others():
    usual, promotion = (
        {name: RANKED[period][name]["without_gains"] for name in ("lambdarank", "softmax")}
        for period in ("usual", "promotion")
    )
    assert all(low > 0 for gains in (usual, promotion) for _, low, _ in gains.values())
    assert {f"{mean:.3f}" for mean, _, _ in usual.values()} == {"0.015"}
    assert [f"{mean:.2f}" for mean, _, _ in promotion.values()] == ["0.07", "0.05"]
    best = {period: max(RANKERS[1:-1], key=lambda name: of[name]["ndcg@10"][0]) for period, of in RANKED.items()}
    assert set(best.values()) == {"softmax without subclass"}


def test_one_column_ranks_the_promotion_and_nothing_else():
    better = {name for name, of in RANKED["promotion"].items() if of["ndcg@10"][0] > 0.4089}
    assert better == {"softmax without subclass", "fit"}
    for period in ("usual", "after the rush"):
        lowest = min(of["ndcg@10"][0] for name, of in RANKED[period].items() if name != "buyers_7")
        assert RANKED[period]["buyers_7"]["ndcg@10"][0] < lowest - 0.1


def test_draws_move_a_mean():
    spread = {
        period: max(max(of["by_draw"]) - min(of["by_draw"]) for of in RANKED[period].values())
        for period in ("usual", "promotion")
    }
    assert {period: f"{most:.2f}" for period, most in spread.items()} == {"usual": "0.01", "promotion": "0.05"}
