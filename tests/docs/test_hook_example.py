"""The hook that docs/operations.md shows does what it says."""

import re
from pathlib import Path

import numpy as np
import pytest

from listwright.ranking.router import Choice, Query
from listwright.service import hook
from listwright.service.settings import Settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture
def by_device(tmp_path, monkeypatch):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    name = re.search(r"LISTWRIGHT_HOOK=([\w.:]+)", code)[1]
    (tmp_path / f"{name.partition(':')[0]}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    return hook.load(Settings(bundle=tmp_path, hook=name).hook)


@pytest.mark.parametrize(
    ("context", "length", "choice"),
    [
        ({"device": "tablet"}, 3, Choice(2, 0.9)),
        ({"device": "phone"}, 1, Choice(None)),
        ({"device": "watch"}, 3, None),
        ({}, 3, None),
    ],
)
def test_the_example_is_a_hook(by_device, context, length, choice):
    isolated = hook.IsolatedHook(by_device, budget_s=60.0, threads=1)
    query = Query(np.zeros((length, 4), dtype=np.float32), context, np.zeros(length))
    if choice is None:
        with pytest.raises(hook.RoutingError) as passed:
            isolated(query)
        assert passed.value.kind == hook.PASSED
    else:
        assert isolated(query) == choice
    isolated.close()


def test_every_kind_of_fault_is_explained():
    shown = set(re.findall(r"^\| `((?:hook|unknown|router|routing)_\w+)` \|", PAGE, re.M))
    sources = Path(hook.__file__).parent.parent
    code = "".join(
        (sources / name).read_text() for name in ("service/hook.py", "ranking/reranker.py", "ranking/router.py")
    )
    raised = set(re.findall(r"(?:RoutingError|_InvalidChoiceError)\(\s*\"(\w+)\"", code))
    assert shown == raised
