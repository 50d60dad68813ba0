"""Rankers of torch and scikit-learn as their users export them, by the exporters' own words."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

WIDTH = 4

ACTIVATIONS = (
    nn.ReLU(),
    nn.LeakyReLU(),
    nn.PReLU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.ELU(),
    nn.SELU(),
    nn.CELU(),
    nn.Softplus(),
    nn.Mish(),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardtanh(),
    nn.Tanh(),
)


class Pointwise(nn.Module):
    """A network of one candidate at a time, ``(L, D) -> (L, 1)``."""

    def __init__(self) -> None:
        super().__init__()
        self.begin = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 8), nn.Dropout(), nn.LayerNorm(8))
        self.middle = nn.ModuleList(nn.Sequential(nn.Linear(8, 4), one) for one in ACTIVATIONS)
        self.end = nn.Linear(4 * len(ACTIVATIONS), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.begin(torch.nan_to_num(x))
        return self.end(torch.cat([one(x) for one in self.middle], dim=1))


class Listwise(nn.Module):
    """Candidates scaled by the range of their list, then attention, ``(L, D) -> (L,)``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 8)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.score = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nan_to_num(x)
        low, high = x.amin(0, keepdim=True), x.amax(0, keepdim=True)
        return self.score(self.attention(self.inner((x - low) / (high - low + 1e-6))[None]))[0, :, 0]


def network(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def rows(rng: np.random.Generator, length: int) -> np.ndarray:
    found = rng.normal(size=(length, WIDTH)).astype(np.float32)
    found[rng.random(found.shape) < 0.1] = np.nan
    return found


def exported(module: nn.Module, **words: Any) -> bytes:
    """As ``docs/first-stages.md`` says; other words for other versions of the exporter."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own inner life
        torch.onnx.export(module, (torch.zeros(3, WIDTH),), file, verbose=False, **words)
    return file.getvalue()


def new_exporter(module: nn.Module, opset: int) -> bytes:
    length = {"x": {0: torch.export.Dim("L")}}
    return exported(module, dynamo=True, opset_version=opset, dynamic_shapes=length, external_data=False)


def old_exporter(module: nn.Module) -> bytes:
    return exported(module, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes={"x": {0: "L"}})


def ridge() -> tuple[Any, bytes]:
    """A linear ranker of scikit-learn, and its graph."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType

    rng = np.random.default_rng(0)
    features = rows(rng, 100)
    model = make_pipeline(SimpleImputer(), StandardScaler(), Ridge()).fit(features, rng.normal(size=100))
    graph = to_onnx(model, initial_types=[("x", FloatTensorType([None, WIDTH]))])
    return model, graph.SerializeToString()


def graphs() -> Iterator[bytes]:
    """One of each kind, as exporters of several years write them."""
    yield new_exporter(network(Pointwise), 20)
    yield new_exporter(network(Listwise), 18)
    yield old_exporter(network(Pointwise))
    yield ridge()[1]
