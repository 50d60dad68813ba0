"""A ranker as one ONNX file, which ``listwright export`` writes: read and checked with ONNX Runtime alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field

from listwright.ranking import plain_file
from listwright.ranking.candidates import CandidateList, RankedList
from listwright.ranking.errors import BundleError, CandidateError, ListwrightError, plain_text
from listwright.ranking.features import FeatureSchema
from listwright.ranking.golden import MAX_FILE_VALUES, GoldenList, as_array, difference
from listwright.ranking.manifest import BundleName
from listwright.ranking.onnx_graph import METADATA_PREFIX
from listwright.ranking.order import finite_scores
from listwright.ranking.plain_file import NotPlainError, check_values
from listwright.ranking.reranker import Reranker
from listwright.ranking.scorers import ORT_ERRORS, session_options

FACTS = f"{METADATA_PREFIX}ranker"
"""Key of the metadata under which :class:`RankerFacts` stand as JSON."""


class RankerFacts(BaseModel):
    """What a ranker's file says of itself.

    Args:
        strategy, specialist: Ranker of the bundle that the file holds; None for the mixture of all specialists.
        golden_lists: Lists and their answers by the bundle.
        goals: Weight of each goal in the order, in the order of the columns of ``goal_shares``; empty for one goal.
    """

    model_config = ConfigDict(frozen=True)  # a newer release may say more

    name: BundleName
    version: BundleName
    manifest_sha256: str
    strategy: str
    specialist: int | None = None
    feature_schema: FeatureSchema
    golden_lists: Annotated[tuple[GoldenList, ...], Field(min_length=1)]
    goals: Annotated[dict[str, float], Field(exclude_if=lambda weights: not weights)] = Field(default_factory=dict)


class RankerFile:
    """A whole ranker in one ONNX file, on one thread.

    Args:
        path: Path of the file.
        content: Content of the file; None to read it.

    Raises:
        BundleError: if the file is not there, or is no ranker that ``listwright export`` wrote.
    """

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        try:
            self._content = plain_file.read(path, 2**31) if content is None else content  # ONNX has no more
            self._session = onnxruntime.InferenceSession(self._content, session_options())
        except NotPlainError as error:
            raise BundleError(path, str(error)) from error
        except OSError as error:
            raise BundleError(path, f"cannot be read: {error.strerror or error}") from error
        except ORT_ERRORS as error:
            fault = f"is no ONNX file that ONNX Runtime {onnxruntime.__version__} runs, or truncated: {error}"
            raise BundleError(path, fault) from error
        text = self._session.get_modelmeta().custom_metadata_map.get(FACTS)
        if text is None:
            raise BundleError(path, f"is no whole ranker by listwright export, or truncated: no metadata {FACTS}")
        try:
            check_values(text, MAX_FILE_VALUES)
            self.facts = RankerFacts.model_validate_json(text)
        except ValueError as error:
            raise BundleError(path, f"its metadata {FACTS} are damaged; export it again: {error}") from error

    @property
    def summary(self) -> str:
        """What the file holds and which inputs it takes, for people."""
        facts, schema = self.facts, self.facts.feature_schema
        ranker = facts.strategy if facts.specialist is None else f"specialist {facts.specialist}"
        columns = {"features": range(len(schema)), "numbers": schema.numeric, "categories": schema.categorical}
        head = f"{self.path.name}: {facts.name}/{facts.version}, {ranker}, {len(self._content) / 1e6:.2f} MB, "
        inputs = (
            f"  input {entry.name}, {entry.type[7:-1]} (candidates, {entry.shape[1]}): "
            + ", ".join(schema.names[column] for column in columns[entry.name])
            for entry in self._session.get_inputs()
        )
        goals = ", ".join(f"{goal} {weight:g}" for goal, weight in facts.goals.items())
        weights = (f"  weights of goals: {goals}",) if goals else ()
        lines = (f"{head}{len(facts.golden_lists)} golden lists ranked as recorded from the bundle", *inputs, *weights)
        return "\n".join(map(plain_text, lines))

    def rank(self, features: Float[np.ndarray, "L D"]) -> RankedList:
        """Return the order of one list, and its scores.

        Args:
            features: ``(L, D)`` features in schema order, NaN = missing, categories as codes.

        Raises:
            CandidateError: if a value is infinite, or a category is no code of the schema's.
            BundleError: if the graph fails.
        """
        there = {entry.name for entry in self._session.get_outputs()}
        names = [name for name in RankedList._fields if name in there or name not in RankedList._field_defaults]
        try:
            return RankedList(**dict(zip(names, self._session.run(names, self.inputs(features)), strict=True)))
        except ORT_ERRORS as error:
            raise BundleError(self.path, f"cannot rank: {error}") from error

    def inputs(self, features: Float[np.ndarray, "L D"]) -> dict[str, np.ndarray]:
        """Return the graph's inputs for one list; argument and errors as of :meth:`rank`."""
        schema, matrix = self.facts.feature_schema, CandidateList(features).features.copy()
        texts = []
        for column in schema.categorical:
            names = np.array(["", *schema.features[column].categories], dtype=object)
            codes = matrix[:, column] = np.nan_to_num(matrix[:, column])
            if not np.isin(codes, np.arange(len(names))).all():
                raise CandidateError(f"{schema.names[column]!r} has codes that are none of 0 to {len(names) - 1}")
            texts.append(names[codes.astype(np.int64)])
        numbers = matrix[:, list(schema.numeric)]
        inputs = {"features": matrix, "numbers": numbers, "categories": np.stack(texts, axis=1) if texts else numbers}
        return {entry.name: inputs[entry.name] for entry in self._session.get_inputs()}

    def verify(self) -> None:
        """Rank every golden list of the file and compare with the bundle's answers.

        Raises:
            BundleError: naming the first list whose answer differs, or that the file cannot rank.
        """
        for number, expected in enumerate(self.facts.golden_lists, start=1):
            try:
                fault = difference(expected, self.rank(as_array(expected.features)))
            except LookupError as error:
                fault = f"the metadata do not fit the graph: {error}"
            except ListwrightError as error:
                fault = str(error)
            if fault is not None:
                raise BundleError(self.path, f"golden list {number}: {fault}")


def answer(reranker: Reranker, features: Float[np.ndarray, "L D"], strategy: str, specialist: int | None) -> GoldenList:
    """Rank ``(L, D)`` features by a ranker of a bundle, without a router, and return them with finite scores."""
    ranking = reranker.rerank(
        CandidateList(features), strategy=strategy, specialist=specialist, routing=False, probability=True
    )
    values = features, ranking.first_stage_scores, finite_scores(ranking.scores, ranking.order)
    rows, first, scores = (np.where(np.isnan(array), np.array(None), array).tolist() for array in values)
    return GoldenList(
        features=rows,
        strategy=strategy,
        specialist=specialist,
        first_stage_scores=first,
        scores=scores,
        order=ranking.order.tolist(),
        probability=None if ranking.probability is None else ranking.probability.tolist(),
    )
