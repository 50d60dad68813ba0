"""Weights of the rows of a table: those that a column holds, and inverse propensities where labels are clicks."""

from __future__ import annotations

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.training.data.cells import numbers_in
from listwright.training.data.fault import Fault
from listwright.training.data.tables.columns import floats, row_weights
from listwright.training.data.tables.frames import Table
from listwright.training.recipe.data import Propensity, TableData

PLACE = "expected the shown place of the candidate, a whole number from 1"


def weights_of(
    spec: TableData,
    table: Table,
    order: Int[np.ndarray, " R"],
    labels: Int[np.ndarray, " R"],
    offsets: Int[np.ndarray, " O"],
) -> Float[np.ndarray, " R"] | None:
    """How much each row counts; None: all alike.

    Args:
        spec: names of the columns, and propensities.
        table: its rows.
        order: of the rows, which brings queries together.
        labels, offsets: in that order.

    Raises:
        DataError: if a weight or a place is none.
    """
    given = None if spec.weight is None else row_weights(table.frame[spec.weight], table.fault)[order]
    if spec.propensity is None:
        return given
    places = shown_places(table.frame[spec.propensity.column], table.fault)[order]
    inverse = inverse_propensities(labels, places, offsets, spec.propensity)
    return inverse if given is None else given * inverse


def inverse_propensities(
    labels: Int[np.ndarray, " R"], places: Int[np.ndarray, " R"], offsets: Int[np.ndarray, " O"], propensity: Propensity
) -> Float[np.ndarray, " R"]:
    """Weights under which clicks count as if every place had been looked at alike.

    Definition (Joachims et al. 2017, eq. 5; clipped as in Strehl et al. 2010): a clicked candidate at place k counts
    ``u = 1 / max(p_k, clip)``. The other candidates of its list count the mean u of the clicked ones. So a list with
    one click counts u as a whole, in every pair of candidates and in every listwise loss; a list with several counts
    their mean, and divides it among them by u.

    Args:
        labels: ``(R,)`` above 0 where clicked.
        places: ``(R,)`` where candidates were shown, from 1.
        offsets: of the lists.
        propensity: of the places.

    Convention: a list without a click has weights of 1: it gives no pairs, and metrics count it as before.
    """
    p = np.array(propensity.values)[np.minimum(places, len(propensity.values)) - 1]
    clicked = labels > 0
    u = np.where(clicked, 1.0 / np.maximum(p, propensity.clip), 0.0)
    count = np.add.reduceat(clicked.astype(np.float64), offsets[:-1])
    mean = np.divide(np.add.reduceat(u, offsets[:-1]), count, out=np.ones(len(count)), where=count > 0.0)
    weights: Float[np.ndarray, " R"] = np.where(clicked, u, np.repeat(mean, np.diff(offsets)))
    return weights


def shown_places(column: pl.Series, fault: Fault) -> Int[np.ndarray, " R"]:
    """Places from 1.

    Raises:
        DataError: if one is missing, fractional or below 1; names the line.
    """
    values = floats(numbers_in(column))
    bad = ~((values >= 1.0) & (values < 2.0**31) & (np.floor(values) == values))
    if bad.any():
        row = int(np.argmax(bad))
        raise fault(column, f"{PLACE}; found {column[row]!r}", row)
    places: Int[np.ndarray, " R"] = values.astype(np.int64)
    return places
