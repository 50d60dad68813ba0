"""Requests for the bundle of ``tests/contract``, as ``.npy`` and as tensors of the Open Inference Protocol."""

import io
import json

import numpy as np

from support.http.rerank_requests import CODES, NAMES, ROWS

MATRIX = np.array(
    [[np.nan if row[k] is None else row[k] for k in NAMES[:3]] + [CODES.get(row["carrier"], 0)] for row in ROWS],
    dtype=np.float32,
)
IDS = [f"sku-{n}" for n in range(len(ROWS))]
NPY = {"content-type": "application/x-npy"}
INFER = "/v2/models/shop/infer"


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def features(array=MATRIX, **changes):
    return {
        "name": "features",
        "datatype": {"float32": "FP32", "float64": "FP64"}.get(array.dtype.name, array.dtype.name),
        "shape": list(array.shape),
        "parameters": {"binary_data_size": array.nbytes},
    } | changes


def body(inputs, raw=b"", **more):
    """A request of the protocol and its headers."""
    head = json.dumps({"inputs": inputs, **more}).encode()
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    return {"content": head + raw, "headers": headers}


def ask(live, request, path=INFER):
    """Answered outputs by name, and the rest of the answer."""
    response = live.post(path, **request)
    assert response.status_code == 200, response.text
    head = int(response.headers.get("inference-header-content-length", len(response.content)))
    answer = json.loads(response.content[:head])
    at, found = head, {}
    for output in answer.pop("outputs"):
        kind = {"FP32": "<f4", "INT64": "<i8", "BYTES": None}[output["datatype"]]
        if "data" in output:
            values = output["data"] if kind is None else np.array(output["data"], dtype=kind)
        else:
            raw = response.content[at : at + output["parameters"]["binary_data_size"]]
            at += len(raw)
            values = raw if kind is None else np.frombuffer(raw, kind)
        assert output["shape"] == [len(values)] or kind is None
        found[output["name"]] = values
    assert at == len(response.content)
    return found, answer
