"""Recognition of the program that wrote a model file, by its first bytes. Nothing is ever unpickled."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

HEAD_BYTES = 65_536
"""Bytes at the beginning of a file by which its format is recognised."""

ACCEPTED = (
    "a first stage is an ONNX graph, or a LightGBM model in LightGBM's text format, written by Booster.save_model(path)"
)

COLUMN = (
    "put its score of every candidate into the data as a column, and name that one with --first-stage-column COL "
    '(in a recipe: [first_stage] kind = "column", column = "COL")'
)
_EXPORT = f"export it to ONNX, see docs/first-stages.md, or {COLUMN}"
_NO_WAY = f"there is no conversion from {{maker}}: {COLUMN}"
_SAVE = "load it where you trust it, and write booster.save_model(path); the booster of an LGBMRanker is model.booster_"
_EITHER = f"if it holds a LightGBM model, {_SAVE}; any other model: {_EXPORT}"


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A file that cannot be a first stage.

    Args:
        what: Format that the file seems to have.
        remedy: Way from there to a first stage.
    """

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"looks like {self.what}, but {ACCEPTED}: {self.remedy}"


def recognised(head: bytes) -> ForeignModel | None:
    """Return what a file with these first bytes is.

    Args:
        head: First :data:`HEAD_BYTES` of the file, or all of it.

    Returns:
        None for LightGBM's text and for ONNX, whole or damaged, and for what is not known.
    """
    if _is_lightgbm_text(head):
        return None
    archive = next(((name, inner) for name, unpack in _PACKED.items() if (inner := unpack(head))), None)
    return _as_it_is(head) if archive is None else _compressed_model(*archive)


def is_onnx(head: bytes) -> bool:
    """Return whether a file with these first bytes is an ONNX model: a version, and then another field of a model."""
    return _ONNX.match(head) is not None


def _as_it_is(head: bytes) -> ForeignModel | None:
    """Return what an uncompressed file is, see :func:`recognised`."""
    if (head.startswith(b"\x80") and head[1:2] in (b"\2", b"\3", b"\4", b"\5")) or _OLD_PICKLE.match(head):
        return _pickle(head)
    return next((model for pattern, model in _FORMATS if pattern.match(head)), None)


def _is_lightgbm_text(head: bytes) -> bool:
    return head.startswith((b"tree\n", b"tree\r\n"))


def _pickle(head: bytes) -> ForeignModel:
    """Return which library's pickle it is, by the names in it."""
    maker = next((name for word, name in _MAKERS.items() if word in head), None)
    if maker == "LightGBM":
        return ForeignModel("a pickle or joblib file with a LightGBM model in it", _SAVE)
    if maker is not None:
        return ForeignModel(f"a pickle or joblib file of {maker}", _BY_MAKER.get(maker, _EXPORT))
    return ForeignModel("a pickle or joblib file, which is never opened here, because that runs code", _EITHER)


def _compressed_model(name: str, inner: bytes) -> ForeignModel:
    if _is_lightgbm_text(inner):
        return ForeignModel(f"LightGBM's text, compressed with {name}", "unpack it first")
    if is_onnx(inner):
        return ForeignModel(f"an ONNX model, compressed with {name}", "unpack it first")
    model = _as_it_is(inner)  # one layer: there are files that unpack to themselves
    if model is None:
        return ForeignModel(f"a file compressed with {name}", f"unpack it first; {_EITHER}")
    return ForeignModel(f"{model.what}, compressed with {name}", model.remedy)


def _deflated(window: int) -> Callable[[bytes], bytes]:
    def unpack(head: bytes) -> bytes:
        try:
            return zlib.decompressobj(window).decompress(head, HEAD_BYTES)
        except zlib.error:
            return b""

    return unpack


def _bz2(head: bytes) -> bytes:
    try:
        return bz2.BZ2Decompressor().decompress(head, HEAD_BYTES)
    except OSError:
        return b""


def _lzma(head: bytes) -> bytes:
    if not head.startswith((b"\xfd7zXZ\0", b"]\0\0")):
        return b""
    try:
        return lzma.LZMADecompressor().decompress(head, HEAD_BYTES)
    except lzma.LZMAError:
        return b""


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": _deflated(16 + zlib.MAX_WBITS),
    "zlib": _deflated(zlib.MAX_WBITS),
    "bzip2": _bz2,
    "xz": _lzma,
}

_OLD_PICKLE = re.compile(rb"c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n|\([dl]p0\n|[}\]]q\0")
"""Beginning of protocols 0 and 1, which have no mark of their own: an object, a dict or a list."""

_MAKERS = {b"lightgbm": "LightGBM", b"xgboost": "XGBoost", b"catboost": "CatBoost", b"sklearn": "scikit-learn"}

_ONNX = re.compile(rb"\x08[\x01-\x1f][\x12\x1a\x22\x28\x32\x3a\x42]")

_XGBOOST = (
    "export it to ONNX: booster.set_param({'objective': 'reg:squarederror'}), booster.feature_names = None, then "
    "onnxmltools.convert_xgboost(booster, initial_types=[('features', FloatTensorType([None, N]))]), see "
    f"docs/first-stages.md; or {COLUMN}"
)
_CATBOOST = (
    "load it and write model.save_model(path, format='onnx'), which CatBoost can where the model has no categorical "
    f"features and symmetric trees; or {COLUMN}"
)
_BY_MAKER = {"XGBoost": _XGBOOST, "CatBoost": _CATBOOST}

_FORMATS = [
    (re.compile(pattern, re.DOTALL), ForeignModel(what, remedy))
    for pattern, what, remedy in (
        (
            rb"\s*\{\s*\"name\"\s*:\s*\"tree\"",
            "the JSON that LightGBM's dump_model gives, which LightGBM itself cannot read again",
            "write the model with booster.save_model(path)",
        ),
        (rb"\s*\{.*\"learner\"", "an XGBoost model in JSON", _XGBOOST),
        (rb"\{[iUIlL]\0{0,7}\x07learner", "an XGBoost model in UBJSON", _XGBOOST),
        (rb"booster\[\d+\]:", "XGBoost's text dump of its trees", _XGBOOST),
        (rb"\s*\[\s*\{\s*\"nodeid\"", "XGBoost's JSON dump of its trees", _XGBOOST),
        (
            rb"(?:binf|bs64|(?s:.{0,300})(?:rank|reg|binary|multi|count|survival):\w+.{0,16}(?:gbtree|gblinear|dart))",
            "an XGBoost model in its old binary format",
            _XGBOOST,
        ),
        (rb"CBM1", "a CatBoost model (cbm)", _CATBOOST),
        (rb"\s*\{.*\"(?:oblivious_trees|features_info)\"", "a CatBoost model in JSON", _CATBOOST),
        (rb"\s*[{\[]\s*[\"{\[\]}]", "a JSON file", _EITHER),
        (rb"(?:\xef\xbb\xbf)?\s*<.*<PMML\b|(?:\xef\xbb\xbf)?\s*<PMML\b", "a PMML model", _NO_WAY.format(maker="PMML")),
        (rb"PK\x03\x04", "a ZIP archive", _EITHER),
    )
]
