"""What a comparison says, in whole sentences."""

from __future__ import annotations

import math

from listwright.training.comparing.comparison import FEWEST_ACTIVE, FEWEST_UNITS, Compared, Effect, Needed
from listwright.training.comparing.mismatch import LEVEL

NAMES = {"preference": "preference", "hit": "hit rate", "mrr": "MRR", "map": "MAP"}


def metric_name(metric: str) -> str:
    """For people."""
    return NAMES.get(metric, metric.replace("ndcg@", "NDCG@").replace("err@", "ERR@"))


def signed(value: float, digits: int = 4) -> str:
    """With its sign; "none" for NaN."""
    return "none" if math.isnan(value) else f"{value:+.{digits}f}"


def interval(middle: float, half: float) -> str:
    """Around a middle."""
    return "not known" if math.isinf(half) else f"[{signed(middle - half)}, {signed(middle + half)}]"


def verdict(found: Compared) -> str:
    """The answer in one sentence."""
    effect, decision = found.effects[0], found.decision
    look, name = effect.look, metric_name(effect.metric)
    if decision == "mismatch":
        return f"No verdict: {_mismatch(found)}."
    if decision == "too_few":
        return (
            f"No verdict yet: {FEWEST_UNITS} units a side are needed, {FEWEST_ACTIVE} of them with a click or another "
            "value."
        )
    if decision == "none":
        return f"No difference is shown: {name} {signed(look.estimate)}, always-valid 95 % interval " + (
            f"{interval(look.estimate, look.always)}."
        )
    who = "The challenger" if decision == "challenger" else "Control"
    return f"{who} is better: {name} {signed(look.estimate)}, always-valid 95 % interval " + (
        f"{interval(look.estimate, look.always)}."
    )


def advice(found: Compared) -> list[str]:
    """What to do next."""
    effect, look = found.effects[0], found.effects[0].look
    if found.decision == "mismatch":
        return ["Find out which requests are lost or moved before you read any figure below; begin a new experiment."]
    if found.decision in ("challenger", "control"):
        return ["The interval holds at every look, so the experiment may end now."]
    said = [_power(found)] if found.decision == "none" else []
    if look.enough and (effect.low > 0.0 or effect.high < 0.0):
        said.append(
            "The interval for a single look excludes 0. It counts only if this day was the one planned for the look."
        )
    return said


def more(queries: float) -> str:
    """A number of queries, to two digits."""
    if math.isnan(queries):
        return "not known"
    if math.isinf(queries):
        return "out of reach"
    if queries <= 0.0:
        return "none"
    digits = max(0, math.floor(math.log10(queries)) - 1)
    return f"{round(queries / 10**digits) * 10**digits:,}"


def ratio_sentence(found: Compared) -> str:
    """How the arms were filled."""
    ratio = found.ratio
    state = "contradict the shares" if ratio.failed else "agree with the shares"
    return (
        f"{ratio.what.capitalize()}: control {ratio.control:,}, challenger {ratio.challenger:,}. They {state}: "
        f"{1.0 - ratio.share:.0%} and {ratio.share:.0%} were planned, always-valid p = {p_text(ratio.p)}."
    ).replace("%", " %")


def p_text(p: float) -> str:
    """A p-value to two digits."""
    return f"{p:.2f}" if p >= 0.01 else f"{p:.1e}"


def needed_name(one: Needed) -> str:
    """Which difference."""
    return f"{signed(one.true)}, the one observed" if one.why == "observed" else f"{one.true:.4f}, worth to be shown"


def _mismatch(found: Compared) -> str:
    if found.crossed:
        return f"{found.crossed:,} units were in both arms"
    ratio = found.ratio
    planned = f"{1.0 - ratio.share:.0%} and {ratio.share:.0%}".replace("%", " %")
    return (
        f"control and challenger have {ratio.control:,} and {ratio.challenger:,} {ratio.what}, where {planned} were "
        f"planned (p = {p_text(ratio.p)} < {LEVEL:g})"
    )


def _power(found: Compared) -> str:
    effect: Effect = found.effects[0]
    worth = next(one for one in effect.needed if one.why == "worth")
    if worth.always == 0.0:
        return f"A difference of {worth.true:.4f} would probably have been shown by now."
    many = more(worth.always)
    if many == "out of reach":
        return f"A difference of {worth.true:.4f} is out of reach: take a metric that varies less, or interleave."
    said = (
        f"About {many} more queries would show a difference of {worth.true:.4f}, with a probability of 80 %, if new "
        "units come as fast as queries."
    )
    if math.isnan(worth.same_always):
        return said
    same = more(worth.same_always)
    return f"{said} With these units only, " + ("it is out of reach." if same == "out of reach" else f"about {same}.")
