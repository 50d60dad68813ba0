"""A comparison on a terminal of 80 columns, and as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from listwright.training.comparing.comparison import Compared, Effect
from listwright.training.comparing.sentences import (
    advice,
    interval,
    metric_name,
    more,
    needed_name,
    p_text,
    ratio_sentence,
    signed,
    verdict,
)

_WIDTH = 80


def text(found: Compared) -> str:
    """Verdict, checks, metrics, power."""
    return "\n".join(_lines(found))


def numbers(found: Compared) -> dict[str, Any]:
    """Everything that was measured, as JSON has it: an unknown number is null, a day is ISO 8601."""
    plain = asdict(found) | {"decision": found.decision, "verdict": verdict(found)}
    plain["ratio"]["failed"] = found.ratio.failed
    cleaned: dict[str, Any] = _plain(plain)
    return cleaned


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value


def title(found: Compared) -> str:
    """What was compared."""
    named = "" if found.experiment is None else f" {found.experiment!r}"
    days = (found.looks[-1].day - found.looks[0].day).days + 1
    return (
        f"{found.kind.capitalize()}{named}: {found.queries:,} queries of {found.units:,} units, {days} "
        f"{'day' if days == 1 else 'days'}"
    )


def _lines(found: Compared) -> Iterator[str]:
    yield title(found)
    if found.bundles is not None:
        yield f"control {found.bundles[0]}, challenger {found.bundles[1]}"
    yield ""
    for sentence in (verdict(found), *advice(found)):
        yield _filled(sentence)
    yield ""
    yield _filled(ratio_sentence(found))
    if found.untold:
        yield _filled(f"{found.untold:,} queries are left out: control answered them alone.")
    yield ""
    yield f"{'':10} {'control':>8} {'challenger':>10} {'change':>8}  {'at any look, 95 %':19} at one look, 95 %"
    for effect in found.effects:
        yield _row(effect)
    if found.wins is not None:
        won, lost, even = found.wins
        yield ""
        yield f"Units that prefer the challenger: {won:,}; control: {lost:,}; neither: {even:,}"
    for name, p in found.tests:
        yield f"{name[0].upper()}{name[1:]}, one look: p = {p_text(p)}"
    yield ""
    yield f"{'More queries for a difference, power 80 %':42} {'at any look':>13} {'at one look':>13}"
    for one in found.effects[0].needed:
        yield f"  {needed_name(one):40} {more(one.always):>13} {more(one.fixed):>13}"
        yield f"  {'  if only these units come back':40} {more(one.same_always):>13} {more(one.same_fixed):>13}"


def _row(effect: Effect) -> str:
    means = ["" if mean is None else f"{mean:.4f}" for mean in (effect.control, effect.challenger)]
    look = effect.look
    once = "not known" if math.isnan(effect.low) else f"[{signed(effect.low)}, {signed(effect.high)}]"
    always = interval(look.estimate, look.always)
    name = metric_name(effect.metric)[:10]
    return f"{name:10} {means[0]:>8} {means[1]:>10} {signed(look.estimate):>8}  {always:19} {once}"


def _filled(sentence: str) -> str:
    return textwrap.fill(sentence.replace(" %", "\u00a0%"), _WIDTH)
