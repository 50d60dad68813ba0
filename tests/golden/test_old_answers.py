"""Answers that ask for nothing new are those of the version before probabilities and goals, byte for byte.

``python tests/golden/test_old_answers.py FILE`` writes the answers of the version that it runs with.
"""

import json
import re
import sys
from pathlib import Path

import pytest

from support.http import binary_requests
from support.http.binary_requests import INFER, MATRIX, NPY, saved
from support.http.rerank_requests import by_column, by_name, matrix
from support.service.asgi import serving

HERE = Path(__file__).parent
BUNDLE = HERE / "format_7" / "shop" / "1"
ANSWERS = HERE / "answers" / "before_probabilities.json"

RULES = [
    {"action": "pin", "id": "sku-6", "place": 1},
    {"action": "exclude", "where": {"price": {"min": 1.5}}},
    {"action": "boost", "where": {"carrier": "A5"}, "factor": 3},
]
RAW = binary_requests.body([binary_requests.features()], MATRIX.tobytes())
REQUESTS = {
    "rows": ("/rerank", {"json": by_name(id="req-7")}),
    "matrix": ("/rerank", {"json": matrix() | {"top_n": 2, "finite_scores": False, "raw_scores": True}}),
    "columns": ("/rerank?strategy=first_stage", {"json": by_column()}),
    "rules": ("/rerank", {"json": by_name(rules=RULES)}),
    "npy": ("/rerank", {"content": saved(MATRIX), "headers": NPY}),
    "npy to JSON": ("/rerank", {"content": saved(MATRIX), "headers": NPY | {"accept": "application/json"}}),
    "tensors": (INFER, RAW),
    "raw tensors": (
        INFER,
        binary_requests.body(
            [binary_requests.features()], MATRIX.tobytes(), parameters={"binary_data_output": True}, id="req-7"
        ),
    ),
    "tensor by name": (
        INFER,
        binary_requests.body([binary_requests.features()], MATRIX.tobytes(), outputs=[{"name": "ranks"}]),
    ),
    "refused strategy": ("/rerank", {"json": matrix() | {"strategy": "srm"}}),
    "refused field": ("/rerank", {"json": matrix() | {"colour": 1}}),
}


def answers():
    """By the request's name: status, headers but times and lengths, and the body as Latin-1 text."""
    found = {}
    with serving(BUNDLE) as client:
        for name, (path, request) in REQUESTS.items():
            headers = {"x-request-id": "r-1", **request.get("headers", {})}
            answer = client.post(path, **{**request, "headers": headers})
            kept = {k: v for k, v in answer.headers.items() if k not in ("server-timing", "content-length")}
            found[name] = [answer.status_code, kept, answer.content.decode("latin-1")]
    return found


def comparable(text):
    """The text without milliseconds, and with the digits of numbers that every processor agrees on."""
    text = re.sub(r'("(?:parse|queue|first_stage|routing|second_stage|total)":)[\d.e-]+', r"\1MS", text)
    return re.sub(r"-?\d+\.\d+(e[+-]?\d+)?", lambda number: f"{float(number[0]):.5g}", text)


@pytest.fixture(scope="module")
def now():
    return answers()


@pytest.mark.parametrize("name", REQUESTS)
def test_nothing_new_without_being_asked(now, name):
    status, headers, text = json.loads(ANSWERS.read_text(encoding="utf-8"))[name]
    assert now[name][0] == status
    if "npy" in headers.get("content-type", "") or name == "raw tensors":
        assert len(now[name][2]) == len(text)
        head = text.index("\n" if name == "npy" else "}]}")
        assert comparable(now[name][2][:head]) == comparable(text[:head])
    else:
        assert comparable(now[name][2]) == comparable(text)
    assert now[name][1] == headers


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(answers(), indent=1) + "\n", encoding="utf-8")
