"""Estimators of what other orders of logged lists would have got, list by list.

Clicks are position-based, P(click on d at place k) = p_k g_d, with an attraction g, or those of a cascade: people look
from the top and stop at the first click. K places have a propensity p. A candidate below them, or not shown, has no
usable click: what it would get is predicted, and bounded by an attraction of 0 and of 1.
"""

from __future__ import annotations

from typing import NamedTuple

import lightgbm
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit

from listwright.ranking.errors import RecipeError
from listwright.training.first_stage.boosting import clear_refusal

TREES = 100

_SETTINGS = {"learning_rate": 0.08, "num_leaves": 15, "min_data_in_leaf": 100, "lambda_l2": 1.0}
_SETTINGS |= {"bagging_fraction": 0.7, "bagging_freq": 1, "deterministic": True, "force_row_wise": True}

_EDGE = 1e-6
"""Distance of a probability from 0 and 1."""

_LEAST_LOOK = 1e-3
"""Smallest probability of a look in a cascade that a click is divided by."""


class LoggedLists(NamedTuple):
    """Logged lists, one behind the other.

    Args:
        offsets: ``(N + 1,)`` bounds of the lists, none of which is empty.
        places: ``(R,)`` logged places from 0; K for candidates without a usable click.
        clicks: ``(R,)`` whether candidates were clicked; False for those without a usable click.
        attraction: ``(R,)`` predicted probabilities of a click on a candidate that is looked at.
    """

    offsets: Int[np.ndarray, " O"]
    places: Int[np.ndarray, " R"]
    clicks: Bool[np.ndarray, " R"]
    attraction: Float[np.ndarray, " R"]

    def of_rows(self) -> Int[np.ndarray, " R"]:
        """Return the number of each candidate's list."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def by_place(
        self, places: Int[np.ndarray, " R"], values: np.ndarray | float, count: int
    ) -> Float[np.ndarray, "N K"]:
        """Return values at the first places of each list; 0 where no candidate stands."""
        table = np.zeros((len(self.offsets) - 1, count + 1))
        table[self.of_rows(), np.minimum(places, count)] = values
        return table[:, :count]


def value_lists(
    lists: LoggedLists,
    new_places: Int[np.ndarray, "R M"],
    *,
    propensities: Float[np.ndarray, " K"],
    weights: Float[np.ndarray, " K"],
    clip: float,
) -> dict[str, np.ndarray]:
    """Value M other orders of the lists by position-based clicks.

    Definition: with the logged place k and the new place k' of each candidate d, and the weight w of a new place,
        IPS = sum of c_d w(k') / p(k),  DM = sum of w(k') g_d,
        DR = DM + sum of (c_d - p(k) g_d) w(k') / max(p(k), clip)
    where w = p for clicks, and a discount for a discounted gain. DR is IPS where no propensity is below the clip, as
    each candidate has one logged place (Oosterhuis 2022).

    New places count from 0; K and more count nothing.

    Returns:
        ``(N, M)`` values of each list: ``ips``, ``dm`` and ``dr`` leave out candidates without a usable click, to which
        ``filled`` belongs as predicted and ``missing`` if all attract; ``known`` sums the attraction, ``inverse`` 1 / p
        of the clicks. Over all lists: ``(1, M)`` sums ``weight`` of w and ``squares`` of the clicks' weights w / p; the
        ``largest`` weight; ``(1, M, M)`` ``apart``, by how much w of each order exceeds that of each other, summed over
        candidates without a usable click; ``(1, M, 2, K)`` ``by_place``, ``ips`` by logged and by new place.
    """
    count, begins = len(propensities), lists.offsets[:-1]
    new, known = np.minimum(new_places, count), (lists.places < count)[:, None]
    clicks, attraction = lists.clicks[:, None], lists.attraction[:, None]
    looked, gained = np.append(propensities, 1.0)[lists.places][:, None], np.append(weights, 0.0)[new]
    filled, dm = ~known * gained * attraction, known * gained * attraction
    ips, rest = clicks * gained / looked, gained[~known[:, 0]]
    by_row = {
        "ips": ips,
        "dm": dm,
        "dr": dm + known * gained * (clicks - looked * attraction) / np.maximum(looked, clip),
        "known": known * attraction,
        "inverse": clicks / looked,
        "filled": filled,
        "missing": gained * ~known,
    }
    tables = [
        [np.bincount(at, own, count + 1)[:count] for at in (lists.places, places)]
        for own, places in zip((ips + filled).T, new.T, strict=True)
    ]
    return {name: np.add.reduceat(values, begins, axis=0) for name, values in by_row.items()} | {
        "weight": gained.sum(axis=0)[None],
        "squares": np.square(ips).sum(axis=0)[None],
        "largest": (known * gained / looked).max(axis=0)[None],
        "apart": np.array([[np.maximum(own[:, None] - rest, 0.0).sum(axis=0) for own in rest.T]]),
        "by_place": np.array([tables]),
    }


def cascade_lists(
    lists: LoggedLists, new_places: Int[np.ndarray, " R"], *, weights: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " N"]:
    """Value another order of lists with one click at most by a cascade, doubly robust.

    Definition: a list's value V(g) is the sum over places of weight * g * product of (1 - g) above. It is taken of the
    predicted attraction, plus for each candidate that was looked at (c - g) * dV/dg / P(look), with the P(look) of its
    logged place by the prediction (first order of Cascade-DR: Kiyohara et al. 2022). All g are below 1.
    """
    count, of_rows = len(weights), lists.of_rows()
    logged, clicks, occupied = (
        lists.by_place(lists.places, values, count) for values in (lists.attraction, lists.clicks, 1.0)
    )
    looks = (np.cumsum(clicks, axis=1) == clicks) * occupied
    errors = looks * (clicks - logged) / np.maximum(_reached(logged), _LEAST_LOOK)
    new = lists.by_place(new_places, lists.attraction, count)
    gained = _reached(new) * new * weights
    below = gained.sum(axis=1, keepdims=True) - np.cumsum(gained, axis=1)
    slopes = _reached(new) * weights - below / (1.0 - new)
    error, slope = (
        np.pad(table, ((0, 0), (0, 1)))[of_rows, np.minimum(places, count)]
        for table, places in ((errors, lists.places), (slopes, new_places))
    )
    values: Float[np.ndarray, " N"] = gained.sum(axis=1) + np.bincount(of_rows, error * slope)
    return values


def _reached(attraction: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "N K"]:
    """Return the probability that nobody clicked above each place."""
    return np.cumprod(np.pad(1.0 - attraction[:, :-1], ((0, 0), (1, 0)), constant_values=1.0), axis=1)


def fit_attraction(
    features: Float[np.ndarray, "R D"], clicks: Bool[np.ndarray, " R"], looked: Float[np.ndarray, " R"]
) -> tuple[lightgbm.Booster, float]:
    """Fit the attraction g of P(click) = p g, by the likelihood of the clicks: trees, and the log-odds they add to."""
    if np.array_equal(features, np.broadcast_to(features[:1], features.shape), equal_nan=True):
        raise RecipeError("no feature of the bundles varies in the rows: take the file that has them")
    looked = np.minimum(looked, 1.0 - _EDGE)
    base = float(logit(np.clip(clicks.sum() / looked.sum(), _EDGE, 1.0 - _EDGE)))

    def loss(raw: Float[np.ndarray, " R"], _: lightgbm.Dataset) -> tuple[np.ndarray, np.ndarray]:
        attraction = expit(raw)
        slope = (1.0 - attraction) / (1.0 - looked * attraction)
        expected = np.maximum(slope * looked * attraction * (1.0 - attraction), _EDGE)
        return slope * (looked * attraction - clicks), expected

    data = lightgbm.Dataset(features, clicks.astype(np.float64), init_score=np.full(len(features), base))
    settings = {**_SETTINGS, "objective": loss, "verbosity": -1}
    with clear_refusal():
        return lightgbm.train(settings, data, num_boost_round=TREES), base
