"""Arrays as they travel in the metadata of an ONNX graph: beside the nodes that compute the same, slower."""

from __future__ import annotations

import base64
import io
import lzma
import struct
import zipfile
import zlib
from dataclasses import asdict, dataclass, fields
from typing import TypeVar

import numpy as np

from listwright.ranking.errors import ScoringError

P = TypeVar("P", bound="Packed")

_DAMAGED = (EOFError, RuntimeError, struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""Exceptions of zipfile for damaged, encrypted and unknown archives, besides those of numpy."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Base of dataclasses whose fields are arrays."""

    def to_text(self) -> str:
        """Return the arrays as text for the graph's metadata: one line of ASCII."""
        buffer = io.BytesIO()
        np.savez(buffer, **asdict(self))
        return base64.b64encode(buffer.getvalue()).decode()

    @classmethod
    def from_text(cls: type[P], text: str) -> P:
        """Read :meth:`to_text`.

        Raises:
            ScoringError: if it is none, or an array is missing or of another kind.
        """
        try:
            with np.load(io.BytesIO(base64.b64decode(text, validate=True)), allow_pickle=False) as arrays:
                values = {field.name: arrays[field.name] for field in fields(cls)}
        except (ValueError, KeyError, OSError, *_DAMAGED) as error:
            raise ScoringError(f"the packed arrays cannot be read: {error!r}") from error
        return cls(**values)
