"""``listwright join`` from the command line, and its rows straight into ``listwright fit``."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from listwright.ranking import bundle
from listwright.ranking.served_log.files import write
from listwright.training.commands import fit, join
from support.events import event, write_events
from support.served import NOON, served_record
from support.service.bundles import make_bundle
from support.training.tiny import TINY

LABELS = "[labels]\npurchase = 3\nclick = 1\n"


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """Lists of which the dearest candidate is clicked, and now and then bought."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "served").mkdir()
    (tmp_path / "events").mkdir()
    (tmp_path / "labels.toml").write_text(LABELS)
    records, events = [], []
    for number in range(120):
        record = served_record(
            number, 6, served_at=NOON + timedelta(minutes=number), categories={"carrier": ("A5", "B2")}
        )
        codes = np.random.default_rng(number).integers(0, 3, size=6)
        record.features[:, 2] = codes
        records.append(record)
        best = int(np.argmax(record.features[:, 0]))
        events.append(event(number, best, after_s=59 * number + 5))
        if number % 3 == 0:
            events.append(event(number, best, action="purchase", after_s=59 * number + 60))
    write(tmp_path / "served" / "1.avro", records)
    write_events(tmp_path / "events" / "1.jsonl", events)
    return tmp_path


def joined(*more):
    words = ["--served", "served", "--events", "events", "--labels", "labels.toml", "--out", "rows.parquet", *more]
    return join.main(words)


def test_the_rows_go_straight_into_a_fit(logged, capsys):
    assert joined() == 0
    said = capsys.readouterr().out
    assert "160" in said
    assert "720 rows of 120 queries" in said
    head, rest = TINY.split("[data]")[0], TINY.split("[first_stage]")[1]
    (logged / "tiny.toml").write_text(f'{head}[data]\nkind = "table"\n[first_stage]{rest}')
    words = ["tiny.toml", "--data", "rows.parquet", "--split", "time", "--quick", "--model", "first_stage"]
    assert fit.main([*words, "--out", "models/shop/1"]) == 0
    manifest = bundle.load(logged / "models" / "shop" / "1").manifest
    assert manifest.feature_schema.names == ("price", "stars", "carrier")
    assert manifest.feature_schema.features[2].categories == ("A5", "B2")
    assert "split by time (served_at)" in capsys.readouterr().out


def test_what_does_not_count_is_shown(logged, capsys):
    write_events(logged / "events" / "2.jsonl", [event(0, 9), event(500, 0), event(0, 0, action="hover")])
    assert joined("--window", "10s") == 0
    said = capsys.readouterr().out
    rows = {line.rsplit(None, 1)[0].strip(): line.rsplit(None, 1)[1] for line in said.splitlines() if line.strip()}
    assert rows["events counted"] == "120"
    assert rows["not counted: outside the window"] == "40"
    assert rows["not counted: candidate not in the list"] == "1"
    assert rows["not counted: unknown query"] == "1"
    assert rows["not counted: no label for the action"] == "1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--window", "soon"), "--window soon: expected"),
        (("--window", "0m"), "--window 0m: expected"),
        (("--labels", "none.toml"), "--labels none.toml: cannot be read"),
        (("--events", "nowhere"), "nowhere: does not exist"),
        (("--served", "nowhere"), "nowhere: is no folder"),
        (("--out", "rows.csv"), "expected a name that ends in .parquet"),
        (("--resume",), "nothing to resume"),
        (("--replay", "5"), "--bundle DIR"),
        (("--replay", "0"), "expected 1 or more"),
    ],
)
def test_what_is_refused(logged, capsys, words, said):
    assert joined(*words) == 1
    assert said in capsys.readouterr().out
    assert not (logged / "rows.parquet").exists()


def test_an_output_that_is_there_is_kept(logged, capsys):
    (logged / "rows.parquet").write_text("mine")
    assert joined() == 1
    assert "exists already" in capsys.readouterr().out
    assert (logged / "rows.parquet").read_text() == "mine"


def test_ctrl_c_keeps_what_is_done(logged, capsys, monkeypatch):
    def interrupted(*args, **words):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("listwright.training.traffic.join.job._match", interrupted)
        assert joined() == 130
    assert "--resume" in capsys.readouterr().out
    assert joined("--resume") == 0
    assert pl.read_parquet("rows.parquet").height == 720


def test_a_replay_from_the_command_line(logged, capsys):
    make_bundle(logged / "models" / "shop" / "1")
    assert joined("--replay", "5", "--bundle", "models/shop/1") == 1
    assert "holds no record of shop/1" in capsys.readouterr().out
