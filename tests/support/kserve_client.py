"""What KServe's own package says: run by a Python of its own, which has that package and none of ours.

``fields FILE...``: whether the objects of these files have only fields that KServe's API has. ``ask HTTP GRPC NAME``: a
list, ranked over either protocol, by either kind of contents; the outputs as JSON.
"""

import asyncio
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import yaml


def check(kind, value, place):
    """Raise unless the fields of a value are those of a model of KServe's or Kubernetes' client."""
    if listed := re.fullmatch(r"list\[(.*)\]", kind):
        for position, one in enumerate(value):
            check(listed[1], one, f"{place}[{position}]")
    elif re.fullmatch(r"V\d\w+", kind):
        model = getattr(import_module("kserve.models"), kind, None)
        model = model or getattr(import_module("kubernetes.client"), kind)
        types = {name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()}
        model(**{attribute: value.get(name) for attribute, name in model.attribute_map.items()})  # what is required
        for name, one in value.items():
            assert name in types, f"{place} has no field {name}"
            check(types[name], one, f"{place}.{name}")
    elif kind in ("str", "int", "bool"):
        assert type(value).__name__ == kind, f"{place} is {value!r}"


def check_files(files):
    for file in files:
        for item in yaml.safe_load_all(Path(file).read_text(encoding="utf-8")):
            group, version = item["apiVersion"].split("/")
            assert group == "serving.kserve.io"
            check(version.capitalize() + item["kind"], item, item["kind"])


def request(name, rows, *, binary):
    from kserve import InferInput, InferRequest

    matrix = np.array(rows, dtype=np.float32)
    features = InferInput("features", list(matrix.shape), "FP32")
    features.set_data_from_numpy(matrix, binary_data=binary)
    ids = InferInput("ids", [len(matrix)], "BYTES")
    ids.set_data_from_numpy(np.array([f"sku-{n}" for n in range(len(matrix))], dtype=np.object_), binary_data=binary)
    return InferRequest(model_name=name, infer_inputs=[features, ids], request_id="q")


async def ask(http, grpc, name, matrix):
    from kserve import InferenceGRPCClient, InferenceRESTClient
    from kserve.inference_client import RESTConfig

    over_http, over_grpc = InferenceRESTClient(RESTConfig(protocol="v2")), InferenceGRPCClient(grpc)
    answers = {}
    for binary in (True, False):
        for way, infer in (
            ("http", lambda sent: over_http.infer(http, sent, model_name=name)),
            ("grpc", over_grpc.infer),
        ):
            answer = await infer(request(name, matrix, binary=binary))
            outputs = {one.name: one.as_numpy().ravel() for one in answer.outputs}
            answers[f"{way}, {'raw' if binary else 'typed'}"] = {
                key: [str(v.decode() if isinstance(v, bytes) else v) for v in values.tolist()]
                for key, values in outputs.items()
            }
    ready = [
        await over_http.is_server_live(http),
        await over_http.is_server_ready(http),
        await over_http.is_model_ready(http, name),
        await over_grpc.is_server_live(),
        await over_grpc.is_server_ready(),
        await over_grpc.is_model_ready(name),
    ]
    await over_http.close()
    await over_grpc.close()
    return {"ready": ready, "answers": answers}


def main():
    command, *words = sys.argv[1:]
    if command == "fields":
        check_files(words)
    else:
        print(json.dumps(asyncio.run(ask(*words, json.load(sys.stdin)))))


if __name__ == "__main__":
    main()
