"""Settings that are searched within a fold, on its own training and validation queries, and kept for all seeds."""

from __future__ import annotations

import json
from pathlib import Path

from listwright.ranking.plain_file import read_object
from listwright.training.data.dataset import Splits
from listwright.training.first_stage import lambdamart, relative
from listwright.training.first_stage.fit import FittedFirstStage, kinds_of
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings
from listwright.training.recipe.model import NetworkSpec
from listwright.training.second_stage.fit import search_network, with_values


def tuned_lambdamart(spec: LambdaMart, splits: Splits, file: Path, *, seed: int) -> LambdaMart:
    """LambdaMART with the settings that were found on these data; the number of trees is left to each fit.

    Args:
        spec: its budget, and the list-relative columns that it sees in the search.
        splits: the fold.
        file: for what is found; the search's journal stands beside it.
        seed: of the search.
    """
    if not file.exists():
        seen = relative.widened(splits, relative.candidates(splits.train.schema, kinds_of(spec)))
        found = lambdamart.search_settings(
            seen.train, seen.valid, spec, seed=seed, journal=file.with_suffix(".journal"), prune=True
        )
        keep(file, LambdaMartSettings.model_validate(found.values).model_dump_json())
    settings = LambdaMartSettings.model_validate_json(file.read_bytes())
    return spec.model_copy(update={"settings": settings, "trials": 1})


def tuned_network(
    spec: NetworkSpec, splits: Splits, first: FittedFirstStage, file: Path, *, trials: int, seed: int, state: Path
) -> NetworkSpec:
    """A network with the settings that were found on these data.

    Args:
        spec: whose own values are the first trial.
        splits, first: the fold, and what the first stage leaves of it.
        file: for what is found; the search's journal stands beside it.
        trials: how many.
        seed: of the search and its fits.
        state: for the checkpoint of the trial under way.
    """
    if not file.exists():
        journal = file.with_suffix(".journal")
        found = search_network(spec, splits, first, trials=trials, seed=seed, journal=journal, state=state)
        keep(file, json.dumps(found.values))
    return with_values(spec, read_object(file))


def keep(file: Path, text: str) -> None:
    """Write it whole or not at all."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)
