"""What the pages of the listwise suites say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from listwright.training.evaluation.intervals import verdict_of
from listwright.training.experiments.listwise import figures, findings, printed, tables
from listwright.training.experiments.listwise.measured import Measured
from listwright.training.experiments.listwise.plans import BASELINES, LAMBDAMART_RELATIVE, OURS, title
from listwright.training.experiments.listwise.significance import PairedComparison
from listwright.training.reporting.fit_figures import metric_name
from listwright.training.reporting.page import PageFigure, PageSection

PAIRED = (
    "Paired are the test queries. Intervals: 95 % percentile bootstrap over queries and seeds; p: two-sided paired "
    "t-test over queries, each with its mean over seeds, corrected by Holm over "
)


@dataclass(frozen=True, slots=True)
class Told:
    """A suite's conclusions.

    Args:
        verdicts: sentences, the most important first.
        sections: of the page.
        summary: as JSON.
    """

    verdicts: list[str]
    sections: list[PageSection]
    summary: dict[str, object] = field(default_factory=dict)


def table2(found: Measured, ndcg_at: int) -> Told:
    """QILCM, QILCM2 and what is shipped against the best baseline, and against LambdaMART with and without columns."""
    metrics, lead = _metrics(found, ndcg_at)
    ours = [name for name in OURS if name in found.methods]
    family = {name: findings.over_best_baseline(found, name, metrics) for name in ours}
    on_lambdamart = findings.over_lambdamart(found, f"ndcg@{ndcg_at}")
    verdicts = [verdict(one) for one in on_lambdamart if one.method == LAMBDAMART_RELATIVE]
    verdicts += [verdict(_of(gained, lead)) + counted(gained) for gained in reversed(family.values())]
    verdicts += [chosen_sentence(counts) for counts in found.chosen.values()]
    note = PAIRED + "the metrics. The best baseline of a metric is seen on these queries, which favours the baseline."
    heading = f"NDCG@{ndcg_at} over LambdaMART, without and with list-relative columns"
    sections = [
        PageSection(tables=[tables.means(found, metrics, "All methods")]),
        PageSection(tables=[tables.comparisons(on_lambdamart, heading, PAIRED + "these rows.", named=True)]),
        *(
            PageSection(
                title=f"{title(name)} against the best baseline of every metric",
                figures=[PageFigure(figures.gains(gained, f"gains-{n}", f"Gains of {title(name)}"), "")],
                tables=[tables.comparisons(gained, "", note)],
            )
            for n, (name, gained) in enumerate(family.items())
        ),
        *_beside_the_paper(found),
        PageSection(tables=[tables.by_convention(found, ndcg_at)]),
    ]
    every = [one for gained in family.values() for one in gained]
    summary = findings.facts(found, every, ndcg_at) | {"over_lambdamart": [asdict(one) for one in on_lambdamart]}
    return Told(verdicts, sections, summary)


def chosen_sentence(counts: Mapping[str, int]) -> str:
    """Which rankers a fit would ship."""
    said = ", ".join(f"{title(name)} in {count}" for name, count in counts.items())
    return f"Of {sum(counts.values())} seeds and folds a fit ships {said}."


def table3(by_shift: Mapping[float | None, Measured], ndcg_at: int) -> Told:
    """QILCM against its variants; over planted shifts, where there are any."""
    first = next(iter(by_shift.values()))
    metrics, lead = _metrics(first, ndcg_at)
    families = {shift: findings.over_variants(found, metrics) for shift, found in by_shift.items()}
    planted = {shift: family for shift, family in families.items() if shift is not None}
    verdicts, sections = [], []
    if len(planted) > 1:
        grown = findings.growth(by_shift, lead)
        verdicts += [growth_sentence(one, lead, min(planted), max(planted)) for one in reversed(grown)]
        caption = "Intervals: 95 % over queries and seeds. Planted utilities and labels are the same at every shift."
        sections.append(PageSection(figures=[PageFigure(figures.gain_by_shift(planted, lead), caption)]))
    else:
        verdicts += [verdict(one) for one in families[next(iter(families))] if one.metric == lead]
    note = PAIRED + "all metrics and variants."
    for shift, found in by_shift.items():
        at = "" if shift is None else f"Planted shift {shift:g}"
        picture = figures.gains(families[shift], f"gains-{shift or 0:g}".replace(".", "-"), f"Gains of QILCM. {at}")
        sections += [
            PageSection(
                tables=[
                    tables.means(found, metrics, at or "All methods"),
                    tables.by_convention(found, ndcg_at, f", {at[0].lower()}{at[1:]}" if at else ""),
                ]
            ),
            PageSection(figures=[PageFigure(picture, "")], tables=[tables.comparisons(families[shift], "", note)]),
        ]
    sections += _beside_the_paper(first)
    said = [{"shift": shift, **findings.facts(found, families[shift], ndcg_at)} for shift, found in by_shift.items()]
    return Told(verdicts, sections, {"data_sets": said})


def anomaly(found: Measured, ndcg_at: int) -> Told:
    """The paper's Figure 2."""
    metrics, lead = _metrics(found, ndcg_at)
    shown = dict.fromkeys((metrics[0], lead))
    all_gaps = [findings.gaps(found, metric) for metric in shown]
    gained = findings.over_best_baseline(found, "qilcm", metrics)
    note = (
        "The anomaly score is an Isolation Forest's, fitted on the training queries' mean features over the first "
        "stage's top 10. Bins hold equally many test queries. The baseline is the best one over all queries in that "
        "metric. In the paper's Figure 2 (Microsoft 30k, NDCG@1, over DLCM) the gap goes from 0.047 to 0.121."
    )
    sections = [
        PageSection(
            title=trend_sentence(one),
            text=[note] if n == 0 else [],
            figures=[
                PageFigure(figures.gap_by_anomaly(one, f"anomaly-{n}"), "Intervals: 95 % over queries and seeds.")
            ],
            tables=[tables.bins(one)],
        )
        for n, one in enumerate(all_gaps)
    ]
    sections += [
        PageSection(tables=[tables.means(found, metrics, "All methods")]),
        PageSection(tables=[tables.comparisons(gained, "QILCM against the best baseline", PAIRED + "the metrics.")]),
        PageSection(tables=[tables.by_convention(found, ndcg_at)]),
    ]
    summary = findings.facts(found, gained, ndcg_at) | {"gaps": [_as_json(one) for one in all_gaps]}
    return Told([f"{trend_sentence(all_gaps[-1])}.", verdict(_of(gained, lead))], sections, summary)


def confusion_weights(found: Measured, ndcg_at: int) -> Told:
    """What the confusion loss is worth."""
    metrics, lead = _metrics(found, ndcg_at)
    gained = findings.over_no_confusion(found, metrics)
    on_lead = [one for one in gained if one.metric == lead]
    verdicts = [weights_sentence(on_lead)]
    sections = [
        PageSection(
            figures=[PageFigure(figures.by_weight(found, lead), f"Bars: standard deviation over {found.seeds} seeds.")],
            tables=[tables.weights(found, lead, gained)],
        ),
        PageSection(
            text=[PAIRED + "all weights and metrics."], tables=[tables.means(found, metrics, "All metrics, by lambda'")]
        ),
        PageSection(tables=[tables.by_convention(found, ndcg_at)]),
    ]
    return Told(verdicts, sections, findings.facts(found, gained, ndcg_at))


def verdict(one: PairedComparison) -> str:
    """What a comparison says, honestly."""
    metric, method, rival = metric_name(one.metric), title(one.method), title(one.rival)
    share = "" if one.improvement is None else f", {one.improvement:+.1%}"
    if one.verdict == "gain":
        return f"{method} beats {rival} by {one.gain:.4f} {metric}{share}; Holm's p is {tables.p_text(one.holm)}."
    if one.verdict == "harm":
        return f"{method} loses to {rival} by {-one.gain:.4f} {metric}{share}; Holm's p is {tables.p_text(one.holm)}."
    return (
        f"{method} and {rival} are not shown to differ in {metric}: {one.gain:+.4f} "
        f"[{one.low:+.4f}, {one.high:+.4f}], Holm's p is {tables.p_text(one.holm)}."
    )


def counted(gained: Sequence[PairedComparison]) -> str:
    """In how many metrics there is more than chance."""
    up, down = _up_and_down(gained)
    return f" Beyond doubt it gains in {up} of {len(gained)} metrics and loses in {down}."


def _up_and_down(gained: Sequence[PairedComparison]) -> tuple[int, int]:
    verdicts = [one.verdict for one in gained]
    return verdicts.count("gain"), verdicts.count("harm")


def growth_sentence(one: findings.Growth, metric: str, weakest: float, strongest: float) -> str:
    """Whether a gain grows with the planted shift, and vanishes without it."""
    ends = f"from {one.weakest:+.4f} at shift {weakest:g} to {one.strongest:+.4f} at {strongest:g}"
    name = f"QILCM's gain over {title(one.rival)} in {metric_name(metric)}"
    moves = {"gain": "grows", "harm": "shrinks", "no difference shown": "is not shown to change"}
    vanished = "" if weakest else f" Without shift its interval {'holds' if one.vanishes else 'does not hold'} 0."
    return f"{name} {moves[verdict_of(one.low, one.high)]} with the planted shift: {ends}.{vanished}"


def weights_sentence(gained: Sequence[PairedComparison]) -> str:
    """Whether the confusion loss is worth its time."""
    best, metric = max(gained, key=lambda one: one.gain), metric_name(gained[0].metric)
    up, down = _up_and_down(gained)
    if best.gain <= 0.0:
        said = f"No weight of the confusion loss raises {metric}"
    else:
        name = title(best.method)
        said = f"Of {len(gained)} weights of the confusion loss, {name} raises {metric} most, by {best.gain:.4f}"
    return f"{said}. Beyond doubt (Holm) {up or 'none'} of {len(gained)} raise it and {down or 'none'} lower it."


def trend_sentence(one: findings.Gaps) -> str:
    """Whether the gap widens for strange queries."""
    what = f"QILCM's gap to {title(one.rival)} in {metric_name(one.metric)}"
    if one.trend is None or one.p is None:
        return f"{what} never varies"
    size = f"(Spearman's correlation {one.trend:+.3f}, p {tables.p_text(one.p)})"
    if one.p >= 0.05:
        return f"{what} is not shown to depend on how anomalous a query is {size}"
    return f"{what} {'widens' if one.trend > 0 else 'narrows'} for anomalous queries {size}"


def _beside_the_paper(found: Measured) -> list[PageSection]:
    known = printed.recognised(found.all_queries, found.features)
    if known is None:
        sets = ", ".join(f"{each.name} ({each.queries} queries, {each.features} features)" for each in printed.SETS)
        said = (
            f"These data ({found.all_queries} queries, {found.features} features) are none of the paper's: no printed "
            f"row stands beside them. The paper's are {sets}."
        )
        return [PageSection(title="Beside the paper", text=[said])]
    return [PageSection(tables=[tables.beside_print(found, known)])]


def _metrics(found: Measured, ndcg_at: int) -> tuple[tuple[str, ...], str]:
    lead = findings.headline(found, ndcg_at)
    return tuple(dict.fromkeys((*found.metrics(), lead))), lead


def _of(gained: Sequence[PairedComparison], metric: str) -> PairedComparison:
    return next(one for one in gained if one.metric == metric)


def _as_json(one: findings.Gaps) -> dict[str, object]:
    bins = [[part.anomaly, part.queries, part.gap, part.low, part.high] for part in one.bins]
    head = {"metric": one.metric, "rival": one.rival, "spearman": one.trend, "p": one.p}
    return head | {"columns": ["anomaly", "queries", "gap", "low", "high"], "bins": bins}


def baselines() -> str:
    """Whom QILCM has to beat."""
    return ", ".join(map(title, BASELINES))
