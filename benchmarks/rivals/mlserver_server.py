"""MLServer: a custom runtime behind the Open Inference Protocol; a parallel worker per core."""

from __future__ import annotations

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

from benchmarks.rivals.pipeline import Pipeline


class Reranker(MLModel):
    """Scores candidate lists."""

    async def load(self) -> bool:
        """Load the pipeline, once in every worker."""
        self._pipeline = Pipeline()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Return scores in input order."""
        scores = self._pipeline.scores(NumpyCodec.decode_input(payload.inputs[0]))
        output = ResponseOutput(name="scores", shape=[len(scores)], datatype="FP64", data=scores)
        return InferenceResponse(model_name=self.name, outputs=[output])
