"""What the suites measure, made up: for their sums and for their pages."""

import numpy as np
import polars as pl

from training.evaluate_routing import RoutingEvaluation


def results(best, mean_of_rest, single, lambdamart, seed=0, count=2):
    """N queries: specialist 0 is the best one, specialist 1 makes the mean what it is."""
    qids = [f"q{n}" for n in range(len(best))]
    columns = {(count, 0): best, (count, 1): mean_of_rest, (1, 0): single, (0, 0): lambdamart}
    return pl.concat(
        pl.DataFrame(
            {
                "qid": qids,
                "ndcg": list(values),
                "ranker": "lambdamart" if k == 0 else "srm",
                "specialists": k,
                "specialist": number,
                "seed": seed,
                "fold": 1,
            }
        )
        for (k, number), values in columns.items()
    )


def routed(count=200, specialists=3):
    rng = np.random.default_rng(0)
    values = rng.random((count, specialists))
    probabilities = rng.dirichlet(np.ones(specialists), size=count)
    choice = probabilities.argmax(axis=1)
    hard = values[np.arange(count), choice]
    return RoutingEvaluation(
        generalist=np.full(count, 0.5),
        specialists=values,
        routed=np.where(probabilities.max(axis=1) > 0.6, hard, 0.5),
        hard=hard,
        mixture=values.mean(axis=1),
        probabilities=probabilities,
        gains=rng.normal(size=(count, specialists)),
        chosen=np.where(probabilities.max(axis=1) > 0.6, choice, -1),
        query=np.arange(count),
    )
