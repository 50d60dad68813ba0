"""``python -m benchmarks.fuzz``: atheris on each decoder: how many inputs, how many crashes.

Each has a process of its own, and as many run at once as there are cores.

atheris instruments the decoders' Python code and lets libFuzzer look for inputs that reach new places in it. A crash is
any exception that is not one of the decoder's own refusals, a disagreement between two decoders of one format, an input
that takes over ten seconds, memory above the limit, or the end of the process.

atheris is no dependency of the project, as it comes with a compiler's run-time: ``uv pip install atheris``. Inputs that
crash are kept in the folder that ``--keep`` names; what merely reached new places is thrown away, as the seeds below
lead there again within seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import atheris
import numpy as np

# atheris 3.0 keeps a little of every array that instrumented code compares: 2 KB an input, 2 GB in five minutes
with atheris.instrument_imports(include=["listwright"], exclude=["listwright.training.data.letor.fast"]):
    from fastapi.exceptions import RequestValidationError
    from pydantic import ValidationError
    from pydantic_core import from_json

    from listwright.ranking.errors import DataError
    from listwright.ranking.features import Feature, FeatureSchema
    from listwright.ranking.served_log.events import event_in
    from listwright.service.errors import UnknownModelError
    from listwright.service.events import lines_of
    from listwright.service.grpc.codec import MESSAGES, InferCodec
    from listwright.service.problems import STATUS
    from listwright.service.wire import json_codec as decode
    from listwright.service.wire import json_matrix as convert
    from listwright.service.wire import npy
    from listwright.service.wire import open_inference as tensors
    from listwright.service.wire import raw_matrix as matrix
    from listwright.service.wire.examples import EVENTS
    from listwright.service.wire.json_codec import plan_of
    from listwright.service.wire.schemas import RerankRequest, validate
    from listwright.training.data.letor import text as letor
    from listwright.training.data.letor.fast import Block, parse_fast
    from listwright.training.data.letor.text import parse_lines
    from listwright_lab import machine

scan: Any = import_module("listwright.service.wire.json_fast")  # compiled: there is nothing in it to instrument

MAX_BYTES = 2048
MEMORY_MIB = 2048
LIMIT = 50
SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="größe", missing_in_training=True),
        Feature(name="carrier", kind="categorical", categories=("A5", "Ü")),
    )
)
PLAN = plan_of(SCHEMA)
REFUSALS: tuple[type[Exception], ...] = (*STATUS, RequestValidationError, DataError)

ROWS: list[list[Any]] = [[1.5, None, "A5"], [-2e3, 0.1, "Ü"]]
NAMED_ROWS = [{"id": f"sku-{n}", "features": dict(zip(SCHEMA.names, row, strict=True))} for n, row in enumerate(ROWS)]
BODIES = [
    json.dumps(body).encode()
    for body in (
        {"candidates": NAMED_ROWS, "id": "q", "context": {"price": 1}, "top_n": 1},
        {"candidates": [{"features": row} for row in ROWS], "strategy": "srm", "specialist": 0},
        {"features": ROWS, "feature_names": SCHEMA.names, "ids": ["a", "b"], "timeout_ms": 1.5, "raw_scores": True},
        {"features": ROWS, "probabilities": True, "min_probability": 0.5, "weights": {"booked": 1, "margin": 0.5}},
    )
]
ARRAY = np.array([[1.5, 2.5, 1.0], [np.nan, -1.0, 0.0]], dtype=np.float32)
TENSOR = {"name": "features", "datatype": "FP32", "shape": [2, 3]}
IDS = {"name": "ids", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}


def a_json_body(data: bytes) -> None:
    """``service.wire.json_codec``, validation, ``service.wire.json_matrix``."""
    request = validate(RerankRequest, decode.decode(data, decode.bounds_of(LIMIT, [SCHEMA])))
    convert.to_candidates(request, SCHEMA)


def an_npy_body(data: bytes) -> None:
    """``service.wire.npy``."""
    matrix.to_candidates(npy.decode(data, SCHEMA, LIMIT), SCHEMA)


def tensors_in_a_body(data: bytes) -> None:
    """``service.wire.open_inference``: two bytes say the length of the JSON object."""
    length = int.from_bytes(data[:2], "big")
    bounds = decode.bounds_of(LIMIT, [SCHEMA])
    head = tensors.decode_head(data[2:], None if length == 0 else str(length), bounds, {})
    tensors.decode(data[2:], *head, SCHEMA, LIMIT)


class _OneBundle:
    """Stand-in for the served models: one bundle, as the codec of a call asks for it."""

    def choose(self, model: str | None, version: str | None) -> Any:
        if model not in (None, "shop") or version is not None:
            raise UnknownModelError("is not served here")
        return SimpleNamespace(reranker=SimpleNamespace(schema=SCHEMA), manifest=SimpleNamespace(fingerprint=""))


def a_message_of_grpc(data: bytes) -> None:
    """``service.grpc.codec``."""
    bounds, one_bundle, state = decode.bounds_of(LIMIT, [SCHEMA]), cast(Any, _OneBundle()), cast(Any, SimpleNamespace())
    InferCodec(bounds, one_bundle, LIMIT, {}, 100.0, state).decode(data)


def a_scanned_body(data: bytes) -> None:
    """``service.wire.json_fast``: what it accepts, the general way accepts as the same.

    Nothing shows which places of compiled code were reached: those of the general way lead on.
    """
    with suppress(*REFUSALS):
        a_json_body(data)
    try:
        rest, features, *_ = scan.scan(data, PLAN, LIMIT)
    except scan.GivenUp:
        return
    if _faults(data):
        assert _faults(data) == _faults(rest), "other faults"
        return
    expected = convert.to_candidates(RerankRequest.model_validate(from_json(data, allow_inf_nan=False)), SCHEMA)
    assert np.array_equal(features, expected.features, equal_nan=True), "other features"


def _faults(body: bytes) -> list[Any]:
    try:
        RerankRequest.model_validate(from_json(body, allow_inf_nan=False))
    except ValidationError as error:
        return [fault["loc"] for fault in error.errors()]
    except ValueError:
        return ["no JSON"]  # the scanner passes on what it does not read itself
    return []


def letor_text(data: bytes) -> None:
    """``training.data.letor``: what its fast parsers accept, the precise one accepts as the same."""
    chunk = data if data.endswith(b"\n") else data + b"\n"  # chunks are whole lines
    for with_qid in (True, False):
        for parse in (parse_fast, letor.parse_compiled):
            fast = parse(chunk, 1, with_qid=with_qid)
            if fast is not None:
                _check_same(fast, parse_lines(chunk, 1, "fuzz", with_qid=with_qid))
    letor.read(BytesIO(data), "fuzz")


def a_body_of_events(data: bytes) -> None:
    """``service.events``: what it writes, the join reads, line by line."""
    for line in lines_of(data):
        assert line.count(b"\n") == 1, "a line holds no event, or two"
        event_in(line)


def _check_same(fast: Block, precise: Block) -> None:
    assert np.array_equal(fast.features, precise.features, equal_nan=True), "other features"
    for name in ("labels", "qids", "runs", "lines"):
        assert list(getattr(fast, name)) == list(getattr(precise, name)), f"other {name}"


def _npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def _tensors() -> list[bytes]:
    raw = json.dumps({"inputs": [TENSOR | {"parameters": {"binary_data_size": ARRAY.nbytes}}, IDS]}).encode()
    plain = json.dumps({"inputs": [TENSOR | {"data": [1, 2, 1, None, 3, 0]}]}).encode()
    return [len(raw).to_bytes(2, "big") + raw + ARRAY.tobytes(), b"\0\0" + plain]


def _messages() -> list[bytes]:
    parameter = MESSAGES["Entry"](key="context", value={"string_param": '{"price": 1}'}).SerializeToString()
    weights = MESSAGES["Entry"](key="weights", value={"string_param": '{"margin": 0.5}'}).SerializeToString()
    raw = MESSAGES["Tensor"](name="features", datatype="FP32", shape=[2, 3]).SerializeToString()
    parameters = [parameter, weights]
    contents = {"fp32_contents": ARRAY.ravel().tolist()}
    typed = MESSAGES["Tensor"](name="features", datatype="FP32", shape=[2, 3], contents=contents).SerializeToString()
    ids = MESSAGES["Tensor"](name="ids", datatype="BYTES", shape=[2], contents={"bytes_contents": [b"a", b"b"]})
    output = MESSAGES["InferRequestedOutputTensor"](name="probabilities").SerializeToString()
    request = MESSAGES["ModelInferRequest"]
    return [
        request(model_name="shop", inputs=[raw], raw_input_contents=[ARRAY.tobytes()]).SerializeToString(),
        request(inputs=[typed, ids.SerializeToString()], outputs=[output], parameters=parameters).SerializeToString(),
    ]


LINES = [b"2 qid:1 1:0.5 2:0.1 # x\n0 qid:1 3:NULL\n", b"1 qid:a 1:1e3\r\n\n0 qid:b 2:-1\n", b"1 1:2\n"]

TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "json": (a_json_body, BODIES),
    "npy": (an_npy_body, [_npy(ARRAY), _npy(ARRAY.astype(np.float64))]),
    "tensors": (tensors_in_a_body, _tensors()),
    "grpc": (a_message_of_grpc, _messages()),
    "scan": (a_scanned_body, BODIES),
    "letor": (
        letor_text,
        LINES,
    ),
    "events": (a_body_of_events, [json.dumps(example["value"]).encode() for example in EVENTS.values()]),
}


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one decoder; libFuzzer ends the process."""
    decoder, seeds = TARGETS[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds):
        (corpus / str(number)).write_bytes(seed)

    def once(data: bytes) -> None:
        with suppress(*REFUSALS):
            decoder(data)

    limits = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", f"-rss_limit_mb={MEMORY_MIB}", "-timeout=10"]
    atheris.Setup([sys.argv[0], *limits, "-seed=7", f"-artifact_prefix={folder}/", str(corpus)], once)
    atheris.Fuzz()


def main() -> int:
    """Run the command line; write ``benchmarks/results/fuzz.json``; return 1 if anything crashed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for each decoder")
    parser.add_argument(
        "--only", choices=TARGETS, help="one decoder, renewed in the result file if that is of as many seconds"
    )
    parser.add_argument("--keep", type=Path, default=Path("fuzz-crashes"), help="folder for inputs that crash")
    parser.add_argument("--in-folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_folder is not None:
        fuzz(options.only, options.seconds, options.in_folder)
    names = [options.only] if options.only else list(TARGETS)
    with ThreadPoolExecutor(os.cpu_count()) as side_by_side:
        results = dict(
            zip(names, side_by_side.map(lambda n: run(n, options.seconds, options.keep), names), strict=True)
        )
    print(json.dumps(results, indent=1))
    command = f"python -m benchmarks.fuzz --seconds {options.seconds}"
    decoders = results if options.only is None else _renewed(command, results)
    if decoders is not None:
        print(machine.save("fuzz", command, {"atheris": version("atheris"), "decoders": decoders}))
    return int(any(result["crashes"] for result in results.values()))


def _renewed(command: str, results: dict[str, Any]) -> dict[str, Any] | None:
    """Return the results of the same command with these in their place; None where the file has none."""
    file = machine.RESULTS / "fuzz.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {**earlier["decoders"], **results} if earlier.get("command") == command else None


def run(name: str, seconds: int, keep: Path) -> dict[str, Any]:
    """Fuzz one decoder in a process of its own, and count."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.fuzz", "--only", name, "--seconds", str(seconds), "--in-folder"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run([*command, folder], capture_output=True, text=True, check=False, env=environment)
        log = ended.stdout + ended.stderr
        crashes = [path for path in Path(folder).iterdir() if path.is_file()]
        done = re.search(r"Done (\d+) runs in (\d+) second", log)
        if ended.returncode or crashes or done is None:
            print(log[-4000:], file=sys.stderr)
        for path in crashes:
            keep.mkdir(exist_ok=True)
            (keep / f"{name}-{path.name}").write_bytes(path.read_bytes())
        coverage = re.findall(r"cov: (\d+)", log)
        return {
            "decoder": (TARGETS[name][0].__doc__ or "").split("\n")[0].rstrip("."),
            "inputs": int(done[1]) if done else None,
            "seconds": int(done[2]) if done else None,
            "places_reached": int(coverage[-1]) if coverage else None,
            "corpus": len(list((Path(folder) / "corpus").iterdir())),
            "crashes": max(len(crashes), int(ended.returncode != 0)),
        }


if __name__ == "__main__":
    sys.exit(main())
