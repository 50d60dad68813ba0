"""Arrays as they travel in the metadata of an ONNX graph: beside the nodes that compute the same, slower."""

from __future__ import annotations

import base64
import binascii
import io
import zipfile
from collections.abc import Iterable, Mapping

import numpy as np

from listwright.ranking.errors import ScoringError


def to_text(arrays: Mapping[str, np.ndarray]) -> str:
    """Encode arrays as one line of ASCII."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return base64.b64encode(buffer.getvalue()).decode()


def from_text(text: str, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Decode :func:`to_text`.

    Raises:
        ScoringError: if it is no such text, or an array is missing.
    """
    try:
        with np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names}
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, binascii.Error) as error:
        raise ScoringError(f"the packed arrays cannot be read: {error!r}") from error
