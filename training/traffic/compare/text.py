"""A comparison in sentences, on a terminal of 80 columns, and as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from listwright.training.traffic.compare.estimates import (
    FEWEST_ACTIVE,
    FEWEST_UNITS,
    LEVEL,
    Effect,
    RequiredQueries,
    TrafficComparison,
)

_WIDTH = 80

NAMES = {"preference": "preference", "hit": "hit rate", "mrr": "MRR", "map": "MAP"}


def text(comparison: TrafficComparison) -> str:
    """Return the text of a comparison: verdict, checks, metrics, power."""
    return "\n".join(_lines(comparison))


def json_values(comparison: TrafficComparison) -> dict[str, Any]:
    """Return everything that was measured as JSON values: an unknown number is null, a day is ISO 8601."""
    plain = asdict(comparison) | {"decision": comparison.decision, "verdict": verdict(comparison)}
    plain["ratio"]["failed"] = comparison.ratio.failed
    cleaned: dict[str, Any] = _plain(plain)
    return cleaned


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


def title(comparison: TrafficComparison) -> str:
    """Return the title: kind, experiment, and how many queries of how many units and days."""
    name = "" if comparison.experiment is None else f" {comparison.experiment!r}"
    days = (comparison.looks[-1].day - comparison.looks[0].day).days + 1
    counts = f"{comparison.queries:,} queries of {comparison.units:,} units"
    return f"{comparison.kind.capitalize()}{name}: {counts}, {days} {'day' if days == 1 else 'days'}"


def _lines(comparison: TrafficComparison) -> Iterator[str]:
    yield title(comparison)
    if comparison.bundles is not None:
        yield f"control {comparison.bundles[0]}, challenger {comparison.bundles[1]}"
    yield ""
    yield from map(_filled, (verdict(comparison), *advice(comparison)))
    yield ""
    yield from map(_filled, check_sentences(comparison))
    yield ""
    yield f"{'':10} {'control':>8} {'challenger':>10} {'change':>8}  {'at any look, 95 %':19} at one look, 95 %"
    for name, control, challenger, change, always, once in map(metric_row, comparison.effects):
        yield f"{name[:10]:10} {control:>8} {challenger:>10} {change:>8}  {always:19} {once}"
    if comparison.wins is not None:
        won, lost, even = comparison.wins
        yield ""
        yield f"Units that prefer the challenger: {won:,}; control: {lost:,}; neither: {even:,}"
    for name, p in comparison.tests:
        yield f"{name[0].upper()}{name[1:]}, one look: p = {p_text(p)}"
    yield ""
    yield f"{'More queries for a difference, power 80 %':42} {'at any look':>13} {'at one look':>13}"
    for row in comparison.effects[0].needed:
        yield f"  {needed_name(row):40} {more(row.always):>13} {more(row.fixed):>13}"
        yield f"  {'  if only these units come back':40} {more(row.same_always):>13} {more(row.same_fixed):>13}"


def metric_row(effect: Effect) -> list[str]:
    """Return name, both means, change and both intervals of a metric as text."""
    means = ("" if mean is None else f"{mean:.4f}" for mean in (effect.control, effect.challenger))
    once = "not known" if math.isnan(effect.low) else f"[{signed(effect.low)}, {signed(effect.high)}]"
    change, always = signed(effect.look.estimate), interval(effect.look.estimate, effect.look.always)
    return [metric_name(effect.metric), *means, change, always, once]


def _filled(sentence: str) -> str:
    return textwrap.fill(sentence.replace(" %", "\u00a0%"), _WIDTH)


def metric_name(metric: str) -> str:
    """Return a metric's name for display."""
    return NAMES.get(metric, metric.replace("ndcg@", "NDCG@").replace("err@", "ERR@"))


def signed(value: float, digits: int = 4) -> str:
    """Format a number with its sign; NaN is "none"."""
    return "none" if math.isnan(value) else f"{value:+.{digits}f}"


def interval(middle: float, half: float) -> str:
    """Format the interval ``middle ± half``."""
    return "not known" if math.isinf(half) else f"[{signed(middle - half)}, {signed(middle + half)}]"


def verdict(comparison: TrafficComparison) -> str:
    """Return the answer in one sentence."""
    effect, decision = comparison.effects[0], comparison.decision
    look, name = effect.look, metric_name(effect.metric)
    if decision == "mismatch":
        return f"No verdict: {_mismatch(comparison)}."
    if decision == "too_few":
        fewest = f"{FEWEST_UNITS} units a side are needed, {FEWEST_ACTIVE} of them"
        return f"No verdict yet: {fewest} with a click or another value."
    answers = {
        "none": "No difference is shown",
        "challenger": "The challenger is better",
        "control": "Control is better",
    }
    change, always = signed(look.estimate), interval(look.estimate, look.always)
    return f"{answers[decision]}: {name} {change}, always-valid 95 % interval {always}."


def advice(comparison: TrafficComparison) -> list[str]:
    """Return what to do next."""
    effect, look = comparison.effects[0], comparison.effects[0].look
    if comparison.decision == "mismatch":
        return ["Find out which requests are lost or moved before you read any figure below; begin a new experiment."]
    if comparison.decision in ("challenger", "control"):
        return ["The interval holds at every look, so the experiment may end now."]
    sentences = [_power(comparison)] if comparison.decision == "none" else []
    if look.enough and (effect.low > 0.0 or effect.high < 0.0):
        sentences.append(
            "The interval for a single look excludes 0. It counts only if this day was the one planned for the look."
        )
    return sentences


def more(queries: float) -> str:
    """Format a number of queries to two digits."""
    if math.isnan(queries):
        return "not known"
    if math.isinf(queries):
        return "out of reach"
    if queries <= 0.0:
        return "none"
    digits = max(0, math.floor(math.log10(queries)) - 1)
    return f"{round(queries / 10**digits) * 10**digits:,}"


def check_sentences(comparison: TrafficComparison) -> list[str]:
    """Describe how many queries each arm received, and how many are left out."""
    ratio = comparison.ratio
    state = "contradict the shares" if ratio.failed else "agree with the shares"
    counts = f"{ratio.what.capitalize()}: control {ratio.control:,}, challenger {ratio.challenger:,}"
    shares = f"They {state}: {_shares(comparison)} were planned, always-valid p = {p_text(ratio.p)}."
    left_out = f"{comparison.untold:,} queries are left out: control answered them alone."
    return [f"{counts}. {shares}", *([left_out] if comparison.untold else [])]


def _shares(comparison: TrafficComparison) -> str:
    share = comparison.ratio.share
    return f"{1.0 - share:.0%} and {share:.0%}".replace("%", " %")


def p_text(p: float) -> str:
    """Format a p-value to two digits."""
    return f"{p:.2f}" if p >= 0.01 else f"{p:.1e}"


def needed_name(row: RequiredQueries) -> str:
    """Return the name of the difference that a row of :class:`RequiredQueries` is about."""
    return f"{signed(row.true)}, the one observed" if row.why == "observed" else f"{row.true:.4f}, smallest relevant"


def _mismatch(comparison: TrafficComparison) -> str:
    if comparison.crossed:
        return f"{comparison.crossed:,} units were in both arms"
    ratio = comparison.ratio
    counts = f"control and challenger have {ratio.control:,} and {ratio.challenger:,} {ratio.what}"
    return f"{counts}, where {_shares(comparison)} were planned (p = {p_text(ratio.p)} < {LEVEL:g})"


def _power(comparison: TrafficComparison) -> str:
    worth = next(row for row in comparison.effects[0].needed if row.why == "worth")
    if worth.always == 0.0:
        return f"A difference of {worth.true:.4f} would probably have been shown by now."
    many = more(worth.always)
    if many == "out of reach":
        return f"A difference of {worth.true:.4f} is out of reach: take a metric that varies less, or interleave."
    line = (
        f"About {many} more queries would show a difference of {worth.true:.4f}, with a probability of 80 %, if new "
        "units come as fast as queries."
    )
    if math.isnan(worth.same_always):
        return line
    same = more(worth.same_always)
    return f"{line} With these units only, " + ("it is out of reach." if same == "out of reach" else f"about {same}.")
