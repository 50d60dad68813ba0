"""``make loop``: traffic, log, join, fit, estimate, experiments, comparison and promotion, against the real service."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from listwright.ranking.served_log.files import log_files, records
from listwright.ranking.served_log.record import hashed
from support.pages.tutorial_text import BLOCK, plain

ROOT = Path(__file__).resolve().parents[2]
PLANTED = 0.7
"""Strength of the position bias of the shop."""

WHOLE = re.compile(r"\d[\d,]*")
"""Counts may differ, too."""


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """Folder of a whole run, and what it printed."""
    folder = tmp_path_factory.mktemp("loop") / "out"
    command = [sys.executable, str(ROOT / "tools" / "loop"), "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def facts(loop):
    return json.loads((loop[0] / "loop.json").read_text())


@pytest.mark.nightly
def test_the_ranker_that_was_fitted_on_clicks_is_better_in_truth_and_is_promoted(loop, facts):
    truth = facts["truth"]
    assert truth["gain"] > truth["half_width"]
    assert facts["comparison"]["decision"] == "challenger"
    assert facts["promoted"]
    assert (loop[0] / "models" / "shop" / "CURRENT").read_text() == "2\n"


@pytest.mark.nightly
def test_estimated_looks_are_those_that_were_planted(facts):
    covered = [one["low"] <= one["position"] ** -PLANTED <= one["high"] for one in facts["propensities"]]
    assert len(covered) == 10
    assert sum(covered) >= 8, facts["propensities"]


@pytest.mark.nightly
def test_the_estimate_before_traffic_is_the_gain_in_truth(facts):
    truth, found = facts["truth"], facts["estimate"]
    assert found["lists"] == facts["explored"]["visits"] / 5
    assert found["check"]["holds"]
    (bundle,) = found["bundles"]
    change = bundle["estimates"][found["estimator"]]
    assert change["low"] > 0.0
    assert change["low"] - truth["half_width_clicks"] <= truth["clicks"] <= change["high"] + truth["half_width_clicks"]
    assert 0.0 < bundle["missing"] < 0.2


@pytest.mark.nightly
def test_every_visit_has_a_record_and_every_click_is_joined(loop, facts):
    folder, _ = loop
    assert facts["explored"]["clicks"] > 1000
    joined = (folder / "03-join.log").read_text()
    assert f"{facts['explored']['clicks']:,}" in joined
    assert f"{facts['explored']['visits']:,}" in joined
    assert facts["shadow"]["failed"] == 0
    assert facts["shadow"]["ok"] + facts["shadow"]["dropped"] > 0, "on a busy machine all may be dropped"


@pytest.mark.nightly
def test_the_tutorial_has_the_commands_and_what_they_print(loop):
    printed = plain(loop[1])
    blocks = BLOCK.findall((ROOT / "docs" / "tutorials" / "loop.md").read_text(encoding="utf-8"))
    shown = [plain(WHOLE.sub("0", text)) for language, text in blocks if language == "text"]
    assert len(shown) == 3
    for text in shown:
        assert text in plain(WHOLE.sub("0", loop[1]))
    lines = " ".join(text.replace("\\\n", " ") for language, text in blocks if language == "sh").splitlines()
    ours = [" ".join(re.sub(r"^LISTWRIGHT_UNIT_SALT=\S+ ", "", line.strip()).split()) for line in lines]
    commands = [line for line in ours if re.match(r"listwright (join|propensity|estimate|compare|publish|fit)", line)]
    assert len(commands) == 8
    (program,) = (text for language, text in blocks if language == "python")
    for line in (*commands, program):
        assert plain(line) in printed


@pytest.mark.nightly
def test_the_forgotten_person_has_no_record_and_no_event(loop):
    folder, printed = loop
    person = re.search(r"--unit (\S+)", printed)[1]
    units = {record.unit for record in records(log_files(folder / "served"))}
    assert len(units) > 1000
    assert not units & {person, hashed(person, b"a salt of the demonstration")}
    lines = [line for path in (folder / "events").iterdir() for line in path.read_text().splitlines()]
    clients = {json.loads(line)["client_id"] for line in lines}
    assert len(clients) > 1000
    assert person not in clients
