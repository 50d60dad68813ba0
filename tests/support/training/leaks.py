"""What is said of one column of otherwise harmless data."""

import numpy as np

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, Remedies, fit_schema
from listwright.training.data.leaks import leaks
from support.lists import lists

TABLE = Remedies("leave it out with --ignore {}", ", or split by it with --split time --time-column {}")
NAN = np.nan


def found(name, column, *, categories=None, of=None, remedies=TABLE, rounding=()):
    """What is said of one column."""
    lengths, _, _, labels, _ = of or lists()
    kind = {} if categories is None else {"kind": "categorical", "categories": categories}
    features = np.asarray(column, dtype=np.float32)[:, None]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    qids = tuple(f"q{n}" for n in range(len(lengths)))
    raw = Dataset(features, labels, offsets, qids, FeatureSchema(features=(Feature(name=name, **kind),)))
    train = raw if categories is None else raw.with_schema(fit_schema(raw))
    return [finding.message for finding in leaks(train, remedies, rounding)]


def only(said):
    (one,) = said
    return one
