"""The trainer: real data in, a sealed bundle out.

``listwright fit --help`` starts here. So does ``listwright.training.Qilcm(...).fit(X, y, qid)``
(``docs/library.md``). Each file imports from its own line or from lines below; ``pyproject.toml`` holds them to it::

    fit, tune, experiment, diagnose, score, generate, join, compare, propensities, fetch  listwright fit ...
    pyfunc                             a bundle as a model of MLflow
    estimator                          the same run as a scikit-learn estimator
    suites/                            fits over seeds and folds, and their pages: listwright experiment
    diagnosis                          whether a second stage is likely to pay, in a minute
    joining/                           a served log and events as judged rows
    comparing/                         two rankers on traffic: intervals that hold at every look
    position_bias                      how likely each shown place is looked at
    scoring/                           every list of a file through a bundle, part by part
    study                              one search for hyperparameters, in a folder of its own
    run                                a fit from the data to the published bundle, in ten steps
    steps                              the schema of the bundle, and the fits
    tracking                           a fit in MLflow or TensorBoard
    reporting/                         report.json, report.html and the table on the terminal
    workspace                          where a run keeps what an interruption must not lose
    choice                             which ranker ``auto`` means, and why
    specialists/                       SRM: K rankers found by EM
    evaluation/                        metrics, intervals and verdicts on held-out queries
    second_stage/                      batches and the training loop of every network
    router                             which specialist for a list; how unlike the training queries it is
    first_stage/                       LambdaMART, list-relative columns, given models
    export/                            fitted rankers as ONNX graphs
    losses/                            losses for any torch module; the exact Plackett-Luce likelihood
    search                             what may be tried, and what is tried next
    workspace                          what every step is given; where a run keeps what must not be lost
    networks/                          QILCM, QILCM2, DLCM, DCM and an MLP as torch modules
    data/                              LETOR text, tables, arrays and synthetic data; splits by query
    stored/                            matrices read on access; shards; folders of interrupted jobs
    recipe/                            what a recipe may say; its options on a command line
    recipes/                           the recipes that come along, as TOML
    cluster                            the same work in processes or on Ray, behind one executor
    command, progress, bars, budget    how a command runs; how far it is, on a terminal; the time that it has
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from listwright.exports import on_demand

if TYPE_CHECKING:
    from listwright.training.estimator import Qilcm

__all__ = ["Qilcm"]

__getattr__ = on_demand(__name__, {"Qilcm": "estimator"}, extra="training")
