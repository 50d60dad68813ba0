"""A ranker as one ONNX file, which ``listwright export`` writes: read and checked with ONNX Runtime alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field

from listwright.ranking.candidates import CandidateList, RankedList
from listwright.ranking.errors import BundleError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.golden import MAX_FILE_VALUES, GoldenList, difference
from listwright.ranking.manifest import BundleName
from listwright.ranking.onnx_graph import METADATA_PREFIX
from listwright.ranking.order import finite_scores
from listwright.ranking.plain_file import check_values
from listwright.ranking.reranker import Reranker
from listwright.ranking.scorers import ORT_ERRORS, session_options

FACTS = f"{METADATA_PREFIX}ranker"
"""Key of the metadata under which :class:`RankerFacts` stand as JSON."""


class RankerFacts(BaseModel):
    """What a ranker's file says of itself.

    Args:
        strategy, specialist: Ranker of the bundle that the file holds; None for the mixture of all specialists.
        golden_lists: Lists and their answers by the bundle.
    """

    model_config = ConfigDict(frozen=True)  # a newer release may say more

    name: BundleName
    version: BundleName
    manifest_sha256: str
    strategy: str
    specialist: int | None = None
    feature_schema: FeatureSchema
    golden_lists: Annotated[tuple[GoldenList, ...], Field(min_length=1)]


class RankerFile:
    """A whole ranker in one ONNX file, on one thread.

    Args:
        path: Path of the file.

    Raises:
        BundleError: if the file is not there, or is no ranker that ``listwright export`` wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise BundleError(path, "does not exist")
        try:
            self._session = onnxruntime.InferenceSession(str(path), session_options())
        except ORT_ERRORS as error:
            raise BundleError(path, f"not an ONNX file that can run here, or truncated: {error}") from error
        text = self._session.get_modelmeta().custom_metadata_map.get(FACTS)
        if text is None:
            raise BundleError(
                path, f"holds no metadata {FACTS}: listwright export did not write it, or it is truncated"
            )
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
        return "\n".join(
            [
                f"{self.path.name}: {facts.name}/{facts.version}, {ranker}, {self.path.stat().st_size / 1e6:.2f} MB, "
                f"{len(facts.golden_lists)} golden lists ranked as by the bundle",
                *(
                    f"  input {entry.name}, {entry.type[7:-1]} (candidates, {entry.shape[1]}): "
                    + ", ".join(schema.names[column] for column in columns[entry.name])
                    for entry in self._session.get_inputs()
                ),
            ]
        )

    def rank(self, features: Float[np.ndarray, "L D"]) -> RankedList:
        """Return the order of one list, and its scores.

        Args:
            features: ``(L, D)`` features in schema order, NaN = missing, categories as codes.

        Raises:
            BundleError: if the graph fails.
        """
        try:
            return RankedList(*self._session.run(RankedList._fields, self._inputs(CandidateList(features).features)))
        except ORT_ERRORS as error:
            raise BundleError(self.path, f"cannot rank: {error}") from error

    def _inputs(self, features: Float[np.ndarray, "L D"]) -> dict[str, np.ndarray]:
        schema = self.facts.feature_schema
        names = {
            column: np.array(["", *schema.features[column].categories], dtype=object) for column in schema.categorical
        }
        inputs: dict[str, np.ndarray] = {}
        for entry in self._session.get_inputs():
            if entry.name == "categories":
                texts = [texts[features[:, column].astype(np.int64)] for column, texts in names.items()]
                inputs["categories"] = np.stack(texts, axis=1)
            else:
                inputs[entry.name] = features if entry.name == "features" else features[:, list(schema.numeric)]
        return inputs

    def verify(self) -> None:
        """Rank every golden list of the file and compare with the bundle's answers.

        Raises:
            BundleError: naming the first list whose answer differs.
        """
        for number, expected in enumerate(self.facts.golden_lists, start=1):
            if fault := self.difference(expected):
                raise BundleError(self.path, f"golden list {number}: {fault}")

    def difference(self, expected: GoldenList) -> str | None:
        """Return how the file's answer differs from the expected one; None where it does not."""
        return difference(expected, self.rank(np.array(expected.features, dtype=np.float64)))


def answer(reranker: Reranker, features: Float[np.ndarray, "L D"], strategy: str, specialist: int | None) -> GoldenList:
    """Rank a list by a bundle, and return it with its answer, whose scores are finite.

    Args:
        reranker: Rankers of the bundle.
        features: ``(L, D)`` features in schema order, categories as codes.
        strategy, specialist: Ranker that answers; no router is asked.
    """
    ranking = reranker.rerank(CandidateList(features), strategy=strategy, specialist=specialist, routing=False)
    values = features, ranking.first_stage_scores, finite_scores(ranking.scores, ranking.order)
    rows, first, scores = (np.where(np.isnan(array), np.array(None), array).tolist() for array in values)
    return GoldenList(
        features=rows,
        strategy=strategy,
        specialist=specialist,
        first_stage_scores=first,
        scores=scores,
        order=ranking.order.tolist(),
    )
