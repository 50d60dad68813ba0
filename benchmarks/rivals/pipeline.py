"""Both stages from the files of a bundle, as one writes them without Listwright; every rival calls this.

It runs in the rival's environment, which has LightGBM, ONNX Runtime and NumPy, and nothing of ours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnxruntime

CUTOFF = 100


class Pipeline:
    """LightGBM over all candidates, QILCM over the best hundred; one thread each.

    Args:
        folder: Folder with ``first_stage.txt`` and ``qilcm.onnx``; default: ``RIVALS_BUNDLE`` of the environment.
    """

    def __init__(self, folder: str | None = None) -> None:
        files = Path(folder or os.environ["RIVALS_BUNDLE"])
        self._trees = lightgbm.Booster(model_file=str(files / "first_stage.txt"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._qilcm = onnxruntime.InferenceSession(
            str(files / "qilcm.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def scores(self, rows: Sequence[Sequence[float]] | np.ndarray[Any, Any]) -> list[float]:
        """Return one score per row, higher is better; rows below the cutoff stay in order under all above it."""
        features = np.asarray(rows, dtype=np.float32)
        first = np.asarray(self._trees.predict(features, raw_score=True, num_threads=1))
        order = np.argsort(-first, kind="stable")
        top = np.sort(order[:CUTOFF])
        inputs = np.column_stack([features[top], first[top].astype(np.float32)])
        (second,) = self._qilcm.run(["scores"], {"features": inputs})
        scores = np.empty(len(features))
        scores[order] = float(second.min()) - np.arange(len(order))
        scores[top] = second
        return scores.tolist()
