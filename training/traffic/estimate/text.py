"""An estimate in sentences, on a terminal of 80 columns, and as one self-contained page."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from listwright.training.reporting.page import PageSection, PageTable, render

_VERDICTS = {
    "better": "is better than",
    "worse": "is worse than",
    "none": "shows no difference to",
    "depends": "may be better or worse than",
}

_WIDTH = 80

_HEAD = ("", "value", "change", "95 % interval", "changed", "no click")


def text(facts: dict[str, Any]) -> str:
    """Return the text of an estimate: a verdict and a line for each bundle, the check, and the limits of the answer."""
    sentences = [textwrap.fill(sentence, _WIDTH) for sentence in _verdicts(facts)]
    paragraphs = [_check(facts), *_pairs(facts), *_weights(facts), *_lists(facts)]
    notes = [textwrap.fill(paragraph, _WIDTH) for paragraph in paragraphs]
    width = max(14, *(len(row["name"]) for row in facts["bundles"]))
    table = [
        f"{name:{width}} {value:>8} {change:>8}  {interval:19} {changed:>8}  {missing:>8}".rstrip()
        for name, value, change, interval, changed, missing in (_HEAD, *_rows(facts))
    ]
    return "\n".join([_title(facts), "", *sentences, "", *table, "", *notes])


def _rows(facts: dict[str, Any]) -> Iterator[list[str]]:
    yield ["logged ranker", f"{facts['control']:.4f}", "", "", "", ""]
    for row in _best_first(facts):
        own = row["estimates"][facts["estimator"]]
        shares = ("<1%" if 0.0 < row[name] < 0.005 else f"{row[name]:.0%}" for name in ("changed", "missing"))
        yield [row["name"], f"{row['value']:.4f}", f"{own['value']:+.4f}", _interval(own), *shares]


def _best_first(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(facts["bundles"], key=lambda row: -row["value"])


def _interval(estimate: dict[str, Any]) -> str:
    return f"[{estimate['low']:+.4f}, {estimate['high']:+.4f}]"


def _difference(estimate: dict[str, Any], judged: dict[str, Any]) -> str:
    low, high = judged["reach"]
    bounds = f"; between {low:+.4f} and {high:+.4f}, depending on candidates without clicks"
    return f"{estimate['value']:+.4f} {_interval(estimate)}{bounds if judged['verdict'] == 'depends' else ''}"


def _title(facts: dict[str, Any]) -> str:
    metric = "clicks" if facts["metric"] == "clicks" else "discounted gain"
    places = f"places 1 to {facts['places']}"
    return f"{facts['lists']:,} logged lists of {facts['units']:,} units: {metric} of a list, {places}"


def _verdicts(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the answer for each bundle, the best first, after a failed check."""
    if facts["check"] is not None and not facts["check"]["holds"]:
        yield (
            "The click model does not hold here: lists with a random swap contradict those without. Do not believe "
            "these estimates; compare the bundles on traffic."
        )
    for row in _best_first(facts):
        own = row["estimates"][facts["estimator"]]
        yield f"{row['name']} {_VERDICTS[row['verdict']]} the logged ranker: {_difference(own, row)}."


def _check(facts: dict[str, Any]) -> str:
    """Return the result of the check of the click model."""
    check = facts["check"]
    if check is None:
        return "The click model is not checked: too few lists with a swap have a click."
    return (
        f"Check of the click model: the logged ranker got {check['logged']:.4f} clicks of a list without a swap; "
        f"{check['estimated']:.4f} is estimated from {check['swapped']:,} lists with one "
        f"(difference {_interval(check['clicks'])}). "
        f"Candidates clicked at the upper swapped place attract {check['attraction']['value']:+.4f} "
        f"{_interval(check['attraction'])} more than at the lower. "
        f"{'Both intervals contain' if check['holds'] else 'At least one interval excludes'} 0."
    )


def _pairs(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the difference of the best bundle to each other."""
    for pair in facts["pairs"]:
        best, other = pair["names"]
        yield f"{best} {_VERDICTS[pair['verdict']]} {other}, on the same lists: {_difference(pair, pair)}."


def _weights(facts: dict[str, Any]) -> Iterator[str]:
    """Yield what a few clicks of large weight, or candidates without clicks, may change."""
    for row in facts["bundles"]:
        yield (
            f"{row['name']}: {row['clicks']:,} clicks count as {row['effective_clicks']:,.0f} of equal weight; the "
            f"largest weight is {row['largest']:.3g}."
        )
        if (bias := row["clip_bias"]) is not None:
            yield (
                f"{row['name']}: the clip {facts['clip']:.3g} moves the change by {bias['value']:+.4f} "
                f"{_interval(bias)}; a verdict of dr must hold for ips, too."
            )
        if row["missing"] >= 0.005:
            low, high = row["bounds"]
            yield (
                f"{row['name']} has {row['missing']:.1%} of its weight on candidates without usable clicks: the change "
                f"is {low:+.4f} if they attract nobody, {high:+.4f} if they attract everybody."
            )


def _lists(facts: dict[str, Any]) -> Iterator[str]:
    """Yield which lists count."""
    for reason, count in facts["left_out"].items():
        yield f"{count:,} lists are left out: {reason}."
    if len(facts["served_by"]) > 1:
        served = [f"{name} {count:,}" for name, count in facts["served_by"].items()]
        yield f"The logged ranker is the one that served each list: {', '.join(served[:10])}."


def page(facts: dict[str, Any]) -> str:
    """Return the page of an estimate as HTML; its ``facts`` also have the ``command``."""
    holds = facts["check"] is not None and facts["check"]["holds"]
    rows, kinds, places = list(_rows(facts)), facts["bundles"][0]["estimates"], map(str, range(1, facts["places"] + 1))
    by_estimator = [
        [row["name"], *(f"{each['value']:+.4f}\n{_interval(each)}" for each in row["estimates"].values())]
        for row in facts["bundles"]
    ]
    by_place = [[row["name"], *(f"{share:.0%}" for share in row["from_place"])] for row in facts["bundles"]]
    weight = PageTable("Share of the clicks' weight by logged place", ["", *places], by_place)
    meaning = "Large differences mean that propensities or predictions are wrong."
    change = PageTable("Change by estimator", ["", *kinds], by_estimator, meaning)
    sections = [
        PageSection(tables=[PageTable("Change to the logged ranker", _HEAD, rows)]),
        *([PageSection("The best bundle and the others", list(_pairs(facts)))] if facts["pairs"] else []),
        PageSection(f"The check {'finds no fault in' if holds else 'does not confirm'} the model", [_check(facts)]),
        PageSection("Where the weight comes from", list(_weights(facts)), tables=[weight, change]),
    ]
    about = f"Estimator: {facts['estimator']}. Intervals are over units, of 95 %, and hold at one look."
    data = {"command": facts["command"], "facts": [about, *_lists(facts)], "settings": json.dumps(facts, indent=1)}
    return render(_title(facts), list(_verdicts(facts)), sections, **data)
