"""Scripts that import the served log by its old name still run, and are warned."""

import importlib
import sys

import pytest

from listwright.ranking import served_log


@pytest.mark.parametrize("name", ["encoding", "events", "files", "record"])
def test_the_old_name_leads_to_the_same_module(name, monkeypatch):
    for old in [module for module in sys.modules if module.startswith("listwright.ranking.served.")]:
        monkeypatch.delitem(sys.modules, old)
    monkeypatch.delitem(sys.modules, "listwright.ranking.served", raising=False)
    with pytest.warns(DeprecationWarning, match="served_log"):
        module = importlib.import_module(f"listwright.ranking.served.{name}")
    assert module is getattr(served_log, name)
