"""What a diagnosis says: tables of 80 columns, one sentence of advice, and the numbers for a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from listwright.training.choice import pays
from listwright.training.diagnosis.between_lists import Spread
from listwright.training.diagnosis.diagnosis import NDCG_AT, Diagnosis, Gain
from listwright.training.evaluation.intervals import FEWEST, choice_verdict_of

SHOWN = 10
"""Features that are printed; all of them are among the numbers."""

MOSTLY, PARTLY = 0.5, 0.1
"""Intraclass correlation from which on most, or a part, of a feature is the level of its list."""

WORTHWHILE = 0.01
"""NDCG that is worth a longer look, where an interval does not rule it out."""

_WIDTH, _NAME, _BAR = 80, 28, 10

Key = Literal["second_stage", "relative", "unsure", "plain", "given"]


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do.

    Args:
        key: a second stage pays; list-relative columns alone pay; nothing is shown, or a gain is not ruled out; a
            plain LightGBM is enough; the first stage is enough where columns were not compared.
        text: one sentence, which a command follows.
        alone: whether that command fits no second stage.
    """

    key: Key
    text: str
    alone: bool

    @property
    def lines(self) -> str:
        """The sentence for a terminal."""
        return textwrap.fill(self.text, _WIDTH)


def advice(found: Diagnosis) -> Advice:
    """What to do, by the intervals."""
    relative, second = found.relative, found.second.comparison
    if second.n < FEWEST:
        text = f"{second.n} queries are too few to say, {FEWEST} are needed; a fit compares all it has:"
        return Advice("unsure", text, alone=False)
    with_columns = relative is not None and pays(relative.comparison)
    if pays(second):
        on = "list-relative columns" if with_columns else "the first stage"
        return Advice("second_stage", f"A second stage pays on top of {on}; fit and compare all of them:", alone=False)
    open_ones = [gain for gain in (None if with_columns else relative, found.second) if gain is not None]
    highest = max(gain.comparison.high for gain in open_ones)
    if highest >= WORTHWHILE:
        shown = "List-relative columns pay" if with_columns else "No gain is shown"
        rest = "of a second stage " if with_columns or relative is None else ""
        text = f"{shown}, but a gain {rest}of up to {highest:.3f} is not ruled out; a fit compares at full length:"
        return Advice("unsure", text, alone=False)
    if with_columns:
        return Advice("relative", "List-relative columns pay; a quick second stage adds nothing to them:", alone=True)
    if relative is None:
        return Advice("given", "A quick second stage adds nothing to the first stage:", alone=True)
    return Advice("plain", "A plain LightGBM is enough; nothing quick gains beyond it:", alone=True)


def tables(found: Diagnosis) -> str:
    """How much of each feature lies between lists, and what rankers gain; at most 80 columns wide."""
    return "\n".join([*_features(found), "", *_gains(found)])


def numbers(found: Diagnosis) -> dict[str, object]:
    """Everything that was measured, as JSON has it."""
    sizes = {name: getattr(found, name) for name in ("queries", "rows", "of_queries", "of_rows")}
    return {
        "data": found.data,
        **sizes,
        "features": [asdict(spread) for spread in found.features],
        "categorical": list(found.categorical),
        "relative_columns": None if found.relative is None else _gain(found.relative),
        "second_stage": _gain(found.second),
    }


def _gain(gain: Gain) -> dict[str, object]:
    one = gain.comparison
    return {
        "before": gain.before,
        "after": gain.after,
        **one.model_dump(include={"metric", "mean", "low", "high", "n"}),
        "verdict": choice_verdict_of(one.low, one.high, one.n),
    }


def _features(found: Diagnosis) -> Iterator[str]:
    yield "Share of each feature's variance between lists (intraclass correlation),"
    yield f"{found.of_queries:,} training queries; list-relative columns take that share away"
    yield ""
    for spread in found.features[:SHOWN]:
        yield _feature(spread)
    if rest := found.features[SHOWN:]:
        shares = [spread.between for spread in rest if spread.between is not None]
        yield f"  and {len(rest)} more" + (f", {min(shares):.2f} to {max(shares):.2f}" if shares else "")
    if found.categorical:
        count = len(found.categorical)
        yield _cut(f"  left out: {count} categorical ({', '.join(found.categorical)})", _WIDTH)


def _feature(spread: Spread) -> str:
    name = f"  {_cut(spread.feature, _NAME):{_NAME}}"
    if spread.between is None:
        return f"{name}     -  {'':{_BAR}}  not defined"
    bar = "█" * round(spread.between * _BAR)
    return f"{name}  {spread.between:.2f}  {bar:{_BAR}}  {_hint(spread.between)}"


def _hint(share: float) -> str:
    if share > 1.0 - 1e-6:
        return "one value per list"
    if share >= MOSTLY:
        return "mostly the list's level"
    return "partly the list's level" if share >= PARTLY else "compares across lists"


def _gains(found: Diagnosis) -> Iterator[str]:
    yield f"What quick rankers gain: NDCG@{NDCG_AT} on {found.queries:,} queries, each ranked by models"
    yield "that were not trained on it; paired, with 95 % intervals over queries"
    yield ""
    if found.relative is None:
        yield "  relative columns  not compared: the first stage is given, or uses none"
    else:
        yield _row("relative columns", found.relative)
    yield _row("a second stage", found.second)
    yield ""


def _row(name: str, gain: Gain) -> str:
    one = gain.comparison
    interval = f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
    return (
        f"  {name:16}  {gain.before:.3f} → {gain.after:.3f}  {interval}  {choice_verdict_of(one.low, one.high, one.n)}"
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
