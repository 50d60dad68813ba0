"""What the suites measure, made up: for their sums and for their pages."""

import numpy as np
import polars as pl

from listwright.training.evaluation.protocol import OTHERS
from listwright.training.evaluation.routing import RoutingEvaluation
from listwright_lab.suites.listwise.measurement import NDCG_AT, TRUNCATED
from listwright_lab.suites.listwise.results import by_shift


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
        default=np.full(count, 0.5),
        specialists=values,
        routed=np.where(probabilities.max(axis=1) > 0.6, hard, 0.5),
        hard=hard,
        mixture=values.mean(axis=1),
        probabilities=probabilities,
        gains=rng.normal(size=(count, specialists)),
        route=np.where(probabilities.max(axis=1) > 0.6, choice, -1),
        query=np.arange(count),
    )


def fitted_results(values, *, relevant=None, anomaly=None, shift=None, chosen=None):
    """What a listwise suite measured.

    ``values[method]`` is ``(S, N)`` NDCG at every depth, NaN where nothing is relevant; ``chosen[method]`` is whose results
    a method took over.
    """
    rows = []
    for method, square in values.items():
        for seed, each in enumerate(np.asarray(square, dtype=float)):
            for n, value in enumerate(each):
                rows.append(
                    {
                        "shift": shift,
                        "seed": seed,
                        "fold": 1,
                        "method": method,
                        "chosen": (chosen or {}).get(method),
                        "qid": f"q{n:04}",
                        "candidates": 12,
                        "relevant": (0 if np.isnan(value) else 3) if relevant is None else relevant[n],
                        "anomaly": None if anomaly is None else float(anomaly[n]),
                        **{
                            f"ndcg@{k}{end}": None if np.isnan(value) else value
                            for k in NDCG_AT
                            for end in ("", TRUNCATED)
                        },
                        **{name: float(np.nan_to_num(value)) for name in OTHERS},
                        "lambda_of_eq_10": 0.0,
                        "seconds": 1.0,
                        "all_queries": 100,
                        "features": 5,
                    }
                )
    return pl.DataFrame(
        rows,
        schema_overrides={"shift": pl.Float64, "chosen": pl.String, "anomaly": pl.Float64, "ndcg@1": pl.Float64},
        infer_schema_length=None,
    )


def measured(values, **more):
    """The same, as arrays."""
    return next(iter(by_shift(fitted_results(values, **more), tuple(values)).values()))


def planted_gains(*, seeds=2, queries=200, gain=0.0, methods=("lambdamart", "qilcm", "dcm", "dlcm", "mlp", "qilcm2")):
    """Every method is the same and noise whose mean is 0, QILCM with ``gain`` more."""
    rng = np.random.default_rng(0)
    base = rng.uniform(0.3, 0.6, size=queries)
    noise = {name: 0.01 * rng.normal(size=(seeds, queries)) for name in methods}
    noise = {name: each - each.mean() for name, each in noise.items()}
    return {name: base + noise[name] + (gain if name == "qilcm" else 0.0) for name in methods}
