"""Ground truth for explanations: Shapley values by their definition, trees by hand, and rerankers to explain."""

import itertools
import math
from functools import cache

import numpy as np

from listwright.ranking.explaining.contributions import Clock
from listwright.ranking.features import QUANTILE_LEVELS
from support.stand_ins import standing_in

NEVER = Clock.until()


def ends_after(looks):
    """A clock whose time is up after so many looks at it."""
    left = iter(range(looks))
    found = standing_in(Clock, over=lambda: next(left, None) is None)
    found.share = lambda part: found
    return found


def by_permutations(worth, players):
    """Shapley values as the mean over all orders; ``worth`` takes a set."""
    worth, values = cache(worth), np.zeros(players)
    for order in itertools.permutations(range(players)):
        joined = frozenset()
        for player in order:
            values[player] += worth(joined | {player}) - worth(joined)
            joined |= {player}
    return values / math.factorial(players)


def of_rows(worth):
    """The same game for rows of booleans."""
    return lambda present: np.array([worth(frozenset(np.flatnonzero(row).tolist())) for row in present])


def random_game(players, seed):
    """A worth for every coalition, without any structure."""
    rng = np.random.default_rng(seed)
    worths = {
        frozenset(which): float(rng.normal())
        for size in range(players + 1)
        for which in itertools.combinations(range(players), size)
    }
    return worths.__getitem__


def expected_of_tree(tree, row, known):
    """The mean of a tree's leaves over training rows that agree with a row where it is known."""
    if "leaf_value" in tree:
        return tree["leaf_value"]
    left, right = tree["left_child"], tree["right_child"]
    if tree["split_feature"] in known:
        return expected_of_tree(left if _goes_left(tree, row[tree["split_feature"]]) else right, row, known)
    counts = [child.get("leaf_count", child.get("internal_count")) for child in (left, right)]
    values = [expected_of_tree(child, row, known) for child in (left, right)]
    return (counts[0] * values[0] + counts[1] * values[1]) / sum(counts)


def _goes_left(node, value):
    if node["decision_type"] == "==":
        return not np.isnan(value) and int(value) in {int(one) for one in node["threshold"].split("||")}
    kind = node["missing_type"]
    if kind == "None" and np.isnan(value):
        value = 0.0
    if (kind == "NaN" and np.isnan(value)) or (kind == "Zero" and (np.isnan(value) or abs(value) <= 1e-35)):
        return node["default_left"]
    return value <= node["threshold"]


def forest_by_hand(booster, row):
    """Path-dependent Shapley values of a LightGBM model for one row as it sees it, and the expected score."""
    trees = [one["tree_structure"] for one in booster.dump_model()["tree_info"]]

    def worth(known):
        return sum(expected_of_tree(tree, row, known) for tree in trees)

    return by_permutations(worth, len(row)), worth(frozenset())


def with_quantiles(reranker, rows):
    """The same reranker, as if it had been trained on these rows: its numeric features get their quantiles."""
    schema = reranker.manifest.feature_schema
    levels = np.nanquantile(rows, QUANTILE_LEVELS, axis=0, method="nearest")
    features = tuple(
        feature
        if feature.kind == "categorical"
        else feature.model_copy(update={"quantiles": tuple(map(float, column))})
        for feature, column in zip(schema.features, levels.T, strict=True)
    )
    schema = schema.model_copy(update={"features": features})
    reranker.manifest = reranker.manifest.model_copy(update={"feature_schema": schema})
    return reranker


def total(stage):
    return sum(one.contribution for one in stage.contributions)


def contribution_values(stage):
    """By feature."""
    return {one.feature: one.contribution for one in stage.contributions}
