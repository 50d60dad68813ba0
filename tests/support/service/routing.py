"""Lists that a router of ``make_bundle`` sends here or there, and what it decided."""

import numpy as np

from listwright.ranking.candidates import CandidateList
from support.service.bundles import rows


def a_list(price, stars, length=12):
    """Mean price and mean stars steer the router: see ``make_bundle``."""
    features = rows(np.random.default_rng(3), length)
    features[:, 0] += price - features[:, 0].mean()
    features[:, 1] += stars - features[:, 1].mean()
    return CandidateList(features)


WORTH_IT, NOT_WORTH_IT, BREAKS_THE_ROUTER = a_list(1.0, 1.0), a_list(0.0, 1.0), a_list(600.0, 1.0)


def decided(ranking):
    route = ranking.route
    return route.strategy, route.decided_by, route.specialist
