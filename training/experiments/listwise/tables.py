"""The tables of the listwise suites, as cells that are to be read."""

from __future__ import annotations

from collections.abc import Sequence

from listwright.training.experiments.listwise.findings import Gaps, conventions
from listwright.training.experiments.listwise.measured import Measured
from listwright.training.experiments.listwise.plans import WEIGHTS, title, weight_name
from listwright.training.experiments.listwise.printed import Printed
from listwright.training.experiments.listwise.significance import PairedComparison
from listwright.training.reporting.fit_figures import metric_name
from listwright.training.reporting.page import PageTable


def means(found: Measured, metrics: Sequence[str], heading: str) -> PageTable:
    """Mean and standard deviation of every method; the best of a metric is marked as in the paper."""
    metrics = (*metrics, "map", "err@10")  # which the papers lack
    best = {metric: found.best(found.methods, metric) for metric in metrics}
    rows = [
        [
            title(name).removeprefix("lambda' = "),
            *(_mean(*found.mean_sd(name, metric), best=name == best[metric]) for metric in metrics),
        ]
        for name in found.methods
    ]
    spread = f"± standard deviation over {found.seeds} seeds" if found.seeds > 1 else "one seed, so no deviation"
    note = f"Mean over {found.queries} test queries and the seeds, {spread}; * the best. Empty queries: 0; full ideal."
    return PageTable(heading, ["", *map(metric_name, metrics)], rows, note)


def comparisons(found: Sequence[PairedComparison], heading: str, note: str, *, named: bool = False) -> PageTable:
    """Gains, how sure they are, and the improvement in per cent; of several methods ``named``, of one by metric."""
    rows = [
        [
            title(one.method) if named else metric_name(one.metric),
            title(one.rival),
            f"{one.gain:+.4f}\n[{one.low:+.4f}, {one.high:+.4f}]",
            "none" if one.improvement is None else f"{one.improvement:+.2%}",
            p_text(one.p),
            p_text(one.holm),
        ]
        for one in found
    ]
    return PageTable(heading, ["", "against", "gain", "improv.", "p (t-test)", "p (Holm)"], rows, note)


def by_convention(found: Measured, ndcg_at: int, at: str = "") -> PageTable:
    """NDCG of every method under all conventions; ``at`` says on which data where there are several."""
    names = ["0", "1", "dropped", "0", "1", "dropped"]
    head = ["", *(f"{name}, {'full' if n < 3 else 'trunc.'}" for n, name in enumerate(names))]
    rows = []
    for name in found.methods:
        values = conventions(found, name, ndcg_at).values()
        rows.append([title(name), *(_mean(pair["mean"] or 0.0, pair["sd"]) for pair in values)])
    note = (
        f"{found.empty} of {found.queries} test queries have no relevant candidate and count 0, 1 or nothing. The "
        "ideal knows all candidates (full) or those that the first stage kept (trunc.). Whether an empty query counts "
        "0 or 1 moves no difference between methods; dropping it divides by fewer."
    )
    return PageTable(f"NDCG@{ndcg_at} under every convention{at}", head, rows, note)


def beside_print(found: Measured, printed: Printed) -> PageTable:
    """Every figure above the one that the paper prints."""
    methods = [name for name in found.methods if any(printed.value(m, name) is not None for m in printed.rows)]
    rows = [
        [metric_name(metric), *(_beside(found, printed, metric, name) for name in methods)] for metric in printed.rows
    ]
    note = "Above: measured here. Below: Zhu, Chen, He, AAAI 2019, Tables 2 and 3, means of 20 runs."
    return PageTable(f"Beside the paper's rows “{printed.name}”", ["", *map(title, methods)], rows, note)


def _beside(found: Measured, printed: Printed, metric: str, method: str) -> str:
    value = printed.value(metric, method)
    return f"{found.mean(method, metric):.4f}\n{'none' if value is None else f'paper {value:.4f}'}"


def weights(found: Measured, metric: str, gained: Sequence[PairedComparison]) -> PageTable:
    """Every weight, the lambda of eq. (10) that it equals as printed, and the gain over none."""
    by_name = {one.method: one for one in gained if one.metric == metric}
    rows = []
    for weight in WEIGHTS:
        name = weight_name(weight)
        one = by_name.get(name)
        change = ["", ""] if one is None else [f"{one.gain:+.4f}\n[{one.low:+.4f}, {one.high:+.4f}]", p_text(one.holm)]
        rows.append([f"{weight:g}", f"{found.lambdas[name]:.2e}", _mean(*found.mean_sd(name, metric)), *change])
    head = ["lambda'", "lambda of eq. (10)", metric_name(metric), "gain over 0", "p (Holm)"]
    note = (
        "lambda' weighs the confusion loss per candidate and dimension; lambda is what eq. (10) must have for "
        "the same, with the sums of eqs. (13) and (14) as printed."
    )
    return PageTable("Weights", head, rows, note)


def bins(found: Gaps) -> PageTable:
    """The bins behind the figure."""
    rows = [
        [f"{part.anomaly:.3f}", f"{part.queries}", f"{part.gap:+.4f}\n[{part.low:+.4f}, {part.high:+.4f}]"]
        for part in found.bins
    ]
    heading = f"{metric_name(found.metric)}, QILCM - {title(found.rival)}"
    return PageTable(heading, ["anomaly", "queries", "gap"], rows)


def p_text(p: float | None) -> str:
    """As people read it."""
    return "none" if p is None else "< 1e-300" if p == 0.0 else f"{p:.2g}"


def _mean(mean: float, spread: float | None, *, best: bool = False) -> str:
    return f"{'*' if best else ''}{mean:.4f}" + ("" if spread is None else f"\n± {spread:.4f}")
