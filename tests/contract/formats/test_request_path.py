"""How many files a plain JSON request enters, and in how many hand-overs: as docs/architecture.md says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from listwright.service.wire.compiled import json_fast

ROOT = Path(__file__).parents[3]
MOST_FILES, MOST_HAND_OVERS = 17, 40


@pytest.mark.nightly
@pytest.mark.skipif(json_fast is None, reason="service.wire.json_fast is not built: there was no C compiler")
def test_a_request_is_a_short_line():
    output = subprocess.check_output([sys.executable, ROOT / "tools" / "request_path.py"], text=True, cwd=ROOT)
    files, hand_overs = map(int, re.search(r"(\d+) files, (\d+) hand-overs", output).groups())
    assert "service/wire/json_codec.py" in output
    assert "ranking/reranker.py" in output
    assert files <= MOST_FILES, output
    assert hand_overs <= MOST_HAND_OVERS, output
    assert f"{files} files in {hand_overs} hand-overs" in (ROOT / "docs" / "architecture.md").read_text()
