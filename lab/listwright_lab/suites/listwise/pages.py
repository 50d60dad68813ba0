"""Pages of the listwise suites: sentences, tables, and figures as SVG text.

Measured figures stand beside those of the QILCM paper (Zhu, Chen, He, AAAI 2019, Tables 1 to 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from listwright.training.evaluation.intervals import verdict_of
from listwright.training.reporting.fit_figures import draw_intervals, metric_name
from listwright.training.reporting.page import COLOURS, INK, PageFigure, PageSection, PageTable, plot
from listwright_lab.suites.listwise.methods import BASELINES, LAMBDAMART_RELATIVE, OURS, WEIGHTS, title, weight_name
from listwright_lab.suites.listwise.results import (
    VARIANTS,
    Gaps,
    Growth,
    PairedComparison,
    Results,
    conventions,
    facts,
    gaps,
    growth,
    headline,
    over_best_baseline,
    over_lambdamart,
    over_no_confusion,
    over_variants,
)

PAIRED = (
    "Paired are the test queries. Intervals: 95 % percentile bootstrap over queries and seeds; p: two-sided paired "
    "t-test over queries, each with its mean over seeds, corrected by Holm over "
)

BLUE, ORANGE, GREEN = COLOURS[:3]

PUBLISHED_METHODS = ("qilcm", "dcm", "dlcm", "lambdamart", "qilcm-v1", "qilcm-v2", "qilcm-v3")
"""Columns of :attr:`PublishedFigures.rows`: Table 2's, then those that Table 3 adds."""

NEAR = 0.01
"""Relative tolerance of a data set's sizes: copies of a set differ by a few queries."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """Content of a suite's page, and its summary.

    Args:
        verdicts: Sentences, the most important first.
        sections: Sections of the page below the sentences.
        summary: Results as JSON.
    """

    verdicts: list[str]
    sections: list[PageSection]
    summary: dict[str, object] = field(default_factory=dict)


def table2(results: Results, ndcg_at: int) -> PageContent:
    """Compare QILCM, QILCM2 and the shipped ranker with the best baseline and with LambdaMART in both forms."""
    metrics, lead = _metrics(results, ndcg_at)
    ours = [name for name in OURS if name in results.methods]
    family = {name: over_best_baseline(results, name, metrics) for name in ours}
    on_lambdamart = over_lambdamart(results, f"ndcg@{ndcg_at}")
    verdicts = [verdict(comparison) for comparison in on_lambdamart if comparison.method == LAMBDAMART_RELATIVE]
    verdicts += [verdict(_of(gained, lead)) + significance_sentence(gained) for gained in reversed(family.values())]
    verdicts += [shipped_sentence(counts) for counts in results.shipped_counts.values()]
    note = PAIRED + "the metrics. The best baseline of a metric is seen on these queries, which favours the baseline."
    heading = f"NDCG@{ndcg_at} over LambdaMART, without and with list-relative columns"
    sections = [
        PageSection(tables=[means_table(results, metrics, "All methods")]),
        PageSection(tables=[comparisons_table(on_lambdamart, heading, PAIRED + "these rows.", by_method=True)]),
        *(
            PageSection(
                title=f"{title(name)} against the best baseline of every metric",
                figures=[PageFigure(gains_figure(gained, f"gains-{n}", f"Gains of {title(name)}"), "")],
                tables=[comparisons_table(gained, "", note)],
            )
            for n, (name, gained) in enumerate(family.items())
        ),
        *_beside_the_paper(results),
        PageSection(tables=[conventions_table(results, ndcg_at)]),
    ]
    every = [comparison for gained in family.values() for comparison in gained]
    summary = facts(results, every, ndcg_at) | {"over_lambdamart": list(map(asdict, on_lambdamart))}
    return PageContent(verdicts, sections, summary)


def shipped_sentence(counts: Mapping[str, int]) -> str:
    """Return which rankers a fit would ship."""
    counts_text = ", ".join(f"{title(name)} in {count}" for name, count in counts.items())
    return f"Of {sum(counts.values())} seeds and folds a fit ships {counts_text}."


def table3(by_shift: Mapping[float | None, Results], ndcg_at: int) -> PageContent:
    """Compare QILCM with its variants; over planted shifts, where there are any."""
    first = next(iter(by_shift.values()))
    metrics, lead = _metrics(first, ndcg_at)
    families = {shift: over_variants(results, metrics) for shift, results in by_shift.items()}
    planted = {shift: family for shift, family in families.items() if shift is not None}
    verdicts, sections = [], []
    if len(planted) > 1:
        grown = growth(by_shift, lead)
        verdicts += [growth_sentence(growth_over, lead, min(planted), max(planted)) for growth_over in reversed(grown)]
        caption = "Intervals: 95 % over queries and seeds. Planted utilities and labels are the same at every shift."
        sections.append(PageSection(figures=[PageFigure(shift_figure(planted, lead), caption)]))
    else:
        verdicts += [verdict(comparison) for comparison in families[next(iter(families))] if comparison.metric == lead]
    note = PAIRED + "all metrics and variants."
    for shift, results in by_shift.items():
        at = "" if shift is None else f"Planted shift {shift:g}"
        picture = gains_figure(families[shift], f"gains-{shift or 0:g}".replace(".", "-"), f"Gains of QILCM. {at}")
        sections += [
            PageSection(
                tables=[
                    means_table(results, metrics, at or "All methods"),
                    conventions_table(results, ndcg_at, f", {at[0].lower()}{at[1:]}" if at else ""),
                ]
            ),
            PageSection(figures=[PageFigure(picture, "")], tables=[comparisons_table(families[shift], "", note)]),
        ]
    sections += _beside_the_paper(first)
    data_sets = [{"shift": shift, **facts(results, families[shift], ndcg_at)} for shift, results in by_shift.items()]
    return PageContent(verdicts, sections, {"data_sets": data_sets})


def anomaly(results: Results, ndcg_at: int) -> PageContent:
    """Conclude on the paper's Figure 2."""
    metrics, lead = _metrics(results, ndcg_at)
    leading = dict.fromkeys((metrics[0], lead))
    all_gaps = [gaps(results, metric) for metric in leading]
    gained = over_best_baseline(results, "qilcm", metrics)
    note = (
        "The anomaly score is an Isolation Forest's, fitted on the training queries' mean features over the first "
        "stage's top 10. Bins hold equally many test queries. The baseline is the best one over all queries in that "
        "metric. In the paper's Figure 2 (Microsoft 30k, NDCG@1, over DLCM) the gap goes from 0.047 to 0.121."
    )
    sections = [
        PageSection(
            title=trend_sentence(by_anomaly),
            text=[note] if n == 0 else [],
            figures=[PageFigure(anomaly_figure(by_anomaly, f"anomaly-{n}"), "Intervals: 95 % over queries and seeds.")],
            tables=[bins_table(by_anomaly)],
        )
        for n, by_anomaly in enumerate(all_gaps)
    ]
    sections += [
        PageSection(tables=[means_table(results, metrics, "All methods")]),
        PageSection(tables=[comparisons_table(gained, "QILCM against the best baseline", PAIRED + "the metrics.")]),
        PageSection(tables=[conventions_table(results, ndcg_at)]),
    ]
    summary = facts(results, gained, ndcg_at) | {"gaps": list(map(_as_json, all_gaps))}
    return PageContent([f"{trend_sentence(all_gaps[-1])}.", verdict(_of(gained, lead))], sections, summary)


def confusion_weights(results: Results, ndcg_at: int) -> PageContent:
    """Conclude on the effect of the confusion loss."""
    metrics, lead = _metrics(results, ndcg_at)
    gained = over_no_confusion(results, metrics)
    on_lead = [comparison for comparison in gained if comparison.metric == lead]
    verdicts = [weights_sentence(on_lead)]
    sections = [
        PageSection(
            figures=[PageFigure(weight_figure(results, lead), f"Bars: standard deviation over {results.seeds} seeds.")],
            tables=[weights_table(results, lead, gained)],
        ),
        PageSection(
            text=[PAIRED + "all weights and metrics."],
            tables=[means_table(results, metrics, "All metrics, by lambda'")],
        ),
        PageSection(tables=[conventions_table(results, ndcg_at)]),
    ]
    return PageContent(verdicts, sections, facts(results, gained, ndcg_at))


def verdict(comparison: PairedComparison) -> str:
    """Describe the result of a comparison."""
    metric, method, rival = metric_name(comparison.metric), title(comparison.method), title(comparison.rival)
    gain, p = comparison.gain, p_text(comparison.holm)
    share = "" if comparison.improvement is None else f", {comparison.improvement:+.1%}"
    if comparison.verdict == "gain":
        return f"{method} beats {rival} by {gain:.4f} {metric}{share}; Holm's p is {p}."
    if comparison.verdict == "harm":
        return f"{method} loses to {rival} by {-gain:.4f} {metric}{share}; Holm's p is {p}."
    return (
        f"{method} and {rival} are not shown to differ in {metric}: {gain:+.4f} "
        f"[{comparison.low:+.4f}, {comparison.high:+.4f}], Holm's p is {p}."
    )


def significance_sentence(gained: Sequence[PairedComparison]) -> str:
    """Return in how many metrics there is a significant difference."""
    up, down = _up_and_down(gained)
    return f" Beyond doubt it gains in {up} of {len(gained)} metrics and loses in {down}."


def _up_and_down(gained: Sequence[PairedComparison]) -> tuple[int, int]:
    verdicts = [comparison.verdict for comparison in gained]
    return verdicts.count("gain"), verdicts.count("harm")


def growth_sentence(growth: Growth, metric: str, weakest: float, strongest: float) -> str:
    """Return whether a gain grows with the planted shift, and vanishes without it."""
    ends = f"from {growth.weakest:+.4f} at shift {weakest:g} to {growth.strongest:+.4f} at {strongest:g}"
    name = f"QILCM's gain over {title(growth.rival)} in {metric_name(metric)}"
    moves = {"gain": "grows", "harm": "shrinks", "no difference shown": "is not shown to change"}
    vanished = "" if weakest else f" Without shift its interval {'holds' if growth.vanishes else 'does not hold'} 0."
    return f"{name} {moves[verdict_of(growth.low, growth.high)]} with the planted shift: {ends}.{vanished}"


def weights_sentence(gained: Sequence[PairedComparison]) -> str:
    """Return whether the confusion loss is worth its time."""
    best, metric = max(gained, key=lambda comparison: comparison.gain), metric_name(gained[0].metric)
    up, down = _up_and_down(gained)
    if best.gain <= 0.0:
        text = f"No weight of the confusion loss raises {metric}"
    else:
        name = title(best.method)
        text = f"Of {len(gained)} weights of the confusion loss, {name} raises {metric} most, by {best.gain:.4f}"
    return f"{text}. Beyond doubt (Holm) {up or 'none'} of {len(gained)} raise it and {down or 'none'} lower it."


def trend_sentence(gaps: Gaps) -> str:
    """Return whether the gap widens for anomalous queries."""
    what = f"QILCM's gap to {title(gaps.rival)} in {metric_name(gaps.metric)}"
    if gaps.trend is None or gaps.p is None:
        return f"{what} never varies"
    size = f"(Spearman's correlation {gaps.trend:+.3f}, p {p_text(gaps.p)})"
    if gaps.p >= 0.05:
        return f"{what} is not shown to depend on how anomalous a query is {size}"
    return f"{what} {'widens' if gaps.trend > 0 else 'narrows'} for anomalous queries {size}"


def _beside_the_paper(results: Results) -> list[PageSection]:
    published = published_figures(results.all_queries, results.features)
    if published is None:
        sets = ", ".join(f"{each.name} ({each.queries} queries, {each.features} features)" for each in PUBLISHED_SETS)
        text = (
            f"These data ({results.all_queries} queries, {results.features} features) are none of the paper's: no "
            f"printed row stands beside them. The paper's are {sets}."
        )
        return [PageSection(title="Beside the paper", text=[text])]
    return [PageSection(tables=[table_beside_print(results, published)])]


def _metrics(results: Results, ndcg_at: int) -> tuple[tuple[str, ...], str]:
    lead = headline(results, ndcg_at)
    return tuple(dict.fromkeys((*results.metrics(), lead))), lead


def _of(gained: Sequence[PairedComparison], metric: str) -> PairedComparison:
    return next(comparison for comparison in gained if comparison.metric == metric)


def _as_json(gaps: Gaps) -> dict[str, object]:
    bins = [[part.anomaly, part.queries, part.gap, part.low, part.high] for part in gaps.bins]
    head = {"metric": gaps.metric, "rival": gaps.rival, "spearman": gaps.trend, "p": gaps.p}
    return head | {"columns": ["anomaly", "queries", "gap", "low", "high"], "bins": bins}


def baselines() -> str:
    """Return the titles of the baselines."""
    return ", ".join(map(title, BASELINES))


def means_table(results: Results, metrics: Sequence[str], heading: str) -> PageTable:
    """Return mean and standard deviation of every method; the best of a metric is marked as in the paper."""
    metrics = (*metrics, "map", "err@10")  # beyond those of the papers
    best = {metric: results.best(results.methods, metric) for metric in metrics}
    rows = [
        [
            title(name).removeprefix("lambda' = "),
            *(_mean(*results.mean_sd(name, metric), best=name == best[metric]) for metric in metrics),
        ]
        for name in results.methods
    ]
    spread = f"± standard deviation over {results.seeds} seeds" if results.seeds > 1 else "one seed, so no deviation"
    note = (
        f"Mean over {results.queries} test queries and the seeds, {spread}; * the best. Empty queries: 0; full ideal."
    )
    return PageTable(heading, ["", *map(metric_name, metrics)], rows, note)


def comparisons_table(
    comparisons: Sequence[PairedComparison], heading: str, note: str, *, by_method: bool = False
) -> PageTable:
    """Return gains, their p-values, and the improvement in per cent; by method if ``by_method``, else by metric."""
    rows = [
        [
            title(comparison.method) if by_method else metric_name(comparison.metric),
            title(comparison.rival),
            f"{comparison.gain:+.4f}\n[{comparison.low:+.4f}, {comparison.high:+.4f}]",
            "none" if comparison.improvement is None else f"{comparison.improvement:+.2%}",
            p_text(comparison.p),
            p_text(comparison.holm),
        ]
        for comparison in comparisons
    ]
    return PageTable(heading, ["", "against", "gain", "improv.", "p (t-test)", "p (Holm)"], rows, note)


def conventions_table(results: Results, ndcg_at: int, at: str = "") -> PageTable:
    """Return NDCG of every method under all conventions; ``at`` names the data where there are several."""
    names = ["0", "1", "dropped", "0", "1", "dropped"]
    head = ["", *(f"{name}, {'full' if n < 3 else 'trunc.'}" for n, name in enumerate(names))]
    rows = []
    for name in results.methods:
        values = conventions(results, name, ndcg_at).values()
        rows.append([title(name), *(_mean(pair["mean"] or 0.0, pair["sd"]) for pair in values)])
    note = (
        f"{results.empty} of {results.queries} test queries have no relevant candidate and count 0, 1 or nothing. The "
        "ideal knows all candidates (full) or those that the first stage kept (trunc.). Whether an empty query counts "
        "0 or 1 moves no difference between methods; dropping it divides by fewer."
    )
    return PageTable(f"NDCG@{ndcg_at} under every convention{at}", head, rows, note)


def table_beside_print(results: Results, published: PublishedFigures) -> PageTable:
    """Return every figure above the one that the paper prints."""
    methods = [name for name in results.methods if any(published.value(m, name) is not None for m in published.rows)]
    rows = [
        [metric_name(metric), *(_cell(results, published, metric, name) for name in methods)]
        for metric in published.rows
    ]
    note = "Above: measured here. Below: Zhu, Chen, He, AAAI 2019, Tables 2 and 3, means of 20 runs."
    return PageTable(f"Beside the paper's rows “{published.name}”", ["", *map(title, methods)], rows, note)


def _cell(results: Results, published: PublishedFigures, metric: str, method: str) -> str:
    value = published.value(metric, method)
    return f"{results.mean(method, metric):.4f}\n{'none' if value is None else f'paper {value:.4f}'}"


def weights_table(results: Results, metric: str, gained: Sequence[PairedComparison]) -> PageTable:
    """Return every weight, the lambda of eq. (10) that it equals as printed, and the gain over none."""
    by_name = {comparison.method: comparison for comparison in gained if comparison.metric == metric}
    rows = []
    for weight in WEIGHTS:
        name = weight_name(weight)
        change = ["", ""]
        if (gain := by_name.get(name)) is not None:
            change = [f"{gain.gain:+.4f}\n[{gain.low:+.4f}, {gain.high:+.4f}]", p_text(gain.holm)]
        rows.append([f"{weight:g}", f"{results.lambdas[name]:.2e}", _mean(*results.mean_sd(name, metric)), *change])
    head = ["lambda'", "lambda of eq. (10)", metric_name(metric), "gain over 0", "p (Holm)"]
    note = (
        "lambda' weighs the confusion loss per candidate and dimension; lambda is what eq. (10) must have for "
        "the same, with the sums of eqs. (13) and (14) as printed."
    )
    return PageTable("Weights", head, rows, note)


def bins_table(gaps: Gaps) -> PageTable:
    """Return the bins behind the figure."""
    rows = [
        [f"{part.anomaly:.3f}", f"{part.queries}", f"{part.gap:+.4f}\n[{part.low:+.4f}, {part.high:+.4f}]"]
        for part in gaps.bins
    ]
    heading = f"{metric_name(gaps.metric)}, QILCM - {title(gaps.rival)}"
    return PageTable(heading, ["anomaly", "queries", "gap"], rows)


def p_text(p: float | None) -> str:
    """Format a p-value for display."""
    return "none" if p is None else "< 1e-300" if p == 0.0 else f"{p:.2g}"


def _mean(mean: float, spread: float | None, *, best: bool = False) -> str:
    return f"{'*' if best else ''}{mean:.4f}" + ("" if spread is None else f"\n± {spread:.4f}")


def gains_figure(comparisons: Sequence[PairedComparison], name: str, label: str) -> str:
    """Draw every gain with its interval; blue and orange are significant by Holm's correction."""
    return draw_intervals(
        [(gain.gain, gain.low, gain.high) for gain in comparisons],
        [f"{metric_name(gain.metric)} over {title(gain.rival)}" for gain in comparisons],
        "gain",
        (name, label),
        verdicts=[gain.verdict for gain in comparisons],
    )


@plot(legend_columns=3)
def shift_figure(axes: Axes, by_shift: Mapping[float, Sequence[PairedComparison]], metric: str) -> tuple[str, str]:
    """Draw the gain of QILCM over its variants against the planted shift."""
    for colour, rival in zip((GREEN, ORANGE, BLUE), VARIANTS, strict=True):
        points = [(shift, c) for shift, row in by_shift.items() for c in row if (c.rival, c.metric) == (rival, metric)]
        shifts, gained = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        errors = [[c.gain - c.low for c in gained], [c.high - c.gain for c in gained]]
        label = f"over {title(rival)}"
        axes.errorbar(shifts, [c.gain for c in gained], yerr=errors, fmt="-o", color=colour, capsize=3, label=label)
    axes.axhline(0.0, color=INK, linewidth=1)
    axes.set(xlabel="planted shift s", ylabel=f"gain of QILCM, {metric_name(metric)}")
    return "shift", "Gain of QILCM over its variants against the planted shift"


@plot()
def anomaly_figure(axes: Axes, gaps: Gaps, name: str) -> tuple[str, str]:
    """Draw the gap of QILCM to the best baseline against the anomaly score."""
    errors = [[part.gap - part.low for part in gaps.bins], [part.high - part.gap for part in gaps.bins]]
    places = [part.anomaly for part in gaps.bins]
    axes.errorbar(places, [part.gap for part in gaps.bins], yerr=errors, fmt="-o", color=BLUE, capsize=3)
    axes.axhline(0.0, color=INK, linewidth=1)
    label = f"QILCM - {title(gaps.rival)}, {metric_name(gaps.metric)}"
    axes.set(xlabel="mean anomaly score of the bin", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return name, f"Gap of QILCM to {title(gaps.rival)} in {metric_name(gaps.metric)}, by anomaly"


@plot(legend_columns=2)
def weight_figure(axes: Axes, results: Results, metric: str) -> tuple[str, str]:
    """Draw the mean over seeds with its standard deviation against the confusion weight, LambdaMART as a line."""
    means, spreads = zip(*(results.mean_sd(weight_name(weight), metric) for weight in WEIGHTS), strict=True)
    places, bars = range(len(WEIGHTS)), [spread or 0.0 for spread in spreads]
    axes.errorbar(places, means, yerr=bars, fmt="-o", color=BLUE, capsize=3, label="QILCM")
    axes.axhline(results.mean("lambdamart", metric), color=INK, linestyle="--", linewidth=1.3, label="LambdaMART")
    axes.set_xticks(places, [f"{weight:g}" for weight in WEIGHTS])
    axes.set(xlabel="weight lambda' of the confusion loss", ylabel=metric_name(metric))
    return "weights", f"{metric_name(metric)} against the weight of the confusion loss"


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """Figures that the paper prints for one data set.

    Args:
        name: Name of the data set in the paper.
        queries: Number of queries (Table 1).
        features: Number of features (Table 1).
        rows: Values by metric, in the order of :data:`PUBLISHED_METHODS`.
    """

    name: str
    queries: int
    features: int
    rows: dict[str, tuple[float, ...]]

    def value(self, metric: str, method: str) -> float | None:
        """Return one figure; None where the paper has none."""
        if metric not in self.rows or method not in PUBLISHED_METHODS:
            return None
        return self.rows[metric][PUBLISHED_METHODS.index(method)]


PUBLISHED_SETS = (
    PublishedFigures(
        "Airline Itinerary",
        33951,
        17,
        {  # the paper calls them P@1 and P@5: with one chosen candidate per query they are hits
            "hit@1": (0.2833, 0.2618, 0.2562, 0.2327, 0.2749, 0.2762, 0.2694),
            "hit@5": (0.6958, 0.6586, 0.6651, 0.6239, 0.6613, 0.6803, 0.6724),
        },
    ),
    PublishedFigures(
        "Microsoft 30k",
        31531,
        136,
        {
            "ndcg@1": (0.5447, 0.4938, 0.4973, 0.4800, 0.5287, 0.5359, 0.5139),
            "ndcg@3": (0.5313, 0.4827, 0.4811, 0.4766, 0.5127, 0.5294, 0.4970),
            "ndcg@5": (0.5368, 0.4904, 0.4892, 0.4842, 0.5230, 0.5347, 0.5030),
            "ndcg@10": (0.5564, 0.5093, 0.5135, 0.5061, 0.5459, 0.5538, 0.5229),
            "ndcg@50": (0.6482, 0.6127, 0.6146, 0.6092, 0.6363, 0.6438, 0.6331),
        },
    ),
    PublishedFigures(
        "Istella-S",
        33018,
        220,
        {
            "ndcg@1": (0.7023, 0.6762, 0.6873, 0.6644, 0.6966, 0.6982, 0.6837),
            "ndcg@3": (0.6696, 0.6552, 0.6537, 0.6378, 0.6654, 0.6672, 0.6628),
            "ndcg@5": (0.6953, 0.6846, 0.6831, 0.6741, 0.6936, 0.6931, 0.6923),
            "ndcg@10": (0.7645, 0.7558, 0.7566, 0.7456, 0.7622, 0.7637, 0.7602),
        },
    ),
)


def published_figures(queries: int, features: int) -> PublishedFigures | None:
    """Return the paper's data set of this size; None for all others."""
    for published in PUBLISHED_SETS:
        if features == published.features and abs(queries - published.queries) <= NEAR * published.queries:
            return published
    return None
