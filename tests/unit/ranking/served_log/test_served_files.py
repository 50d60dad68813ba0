"""Files of the served log: what is written is read again, and what is no such file is refused by name."""

import json

import fastavro
import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.ranking.served_log import files
from listwright.ranking.served_log.encoding import (
    FEATURES_KEY,
    SCHEMA_VERSION,
    VERSION_KEY,
    Block,
    frame_block,
    header,
    long_bytes,
)
from listwright.ranking.served_log.record import Columns, Intervention, ShadowRanking, to_record
from support.served import NAMES, NOON, as_bytes, served_record

FULL = {
    "top_n": 2,
    "order": np.array([2, 0]),
    "route": '{"decided_by":"router"}',
    "degraded": "the second stage failed",
    "experiment": "spring",
    "arm": "challenger",
    "teams": ("control", "challenger"),
    "intervention": Intervention("swap", (0, 1), 0.125),
    "shadow": ShadowRanking("shop/2", (1, 0, 2, 3), "ok"),
    "scores": np.array([0.25, np.nan, -1.5, 3.0]),
    "categories": {"carrier": ("A5", "Ü2")},
}

PLAIN = ("query_id", "served_at", "unit", "bundle", "fingerprint", "candidate_ids", "strategy", "feature_names")
REST = ("request_id", "top_n", "route", "degraded", "experiment", "arm", "teams", "intervention", "shadow")


def written(path, records, **more):
    files.write(path, records, **more)
    return path


@pytest.mark.parametrize("changes", [{}, FULL], ids=["least", "all"])
def test_a_record_comes_back_as_it_was(tmp_path, changes):
    sent = served_record(3, **changes)
    (found,) = files.records([written(tmp_path / "a.avro", [sent])])
    for name in (*PLAIN, *REST, "timings_ms", "categories"):
        assert getattr(found, name) == getattr(sent, name), name
    for name in ("features", "first_stage_scores", "scores", "order"):
        np.testing.assert_array_equal(getattr(found, name), getattr(sent, name))
    assert found.features.dtype == np.float32
    assert found.served_at.utcoffset().total_seconds() == 0
    assert len(found) == 4


def test_other_readers_of_avro_see_the_same(tmp_path):
    """The parts of a record are spliced here, and decoded there as a whole."""
    sent = served_record(5, **FULL)
    with written(tmp_path / "a.avro", [sent, served_record(6)]).open("rb") as file:
        reader = fastavro.reader(file)
        first, second = reader
    assert reader.metadata[VERSION_KEY] == str(SCHEMA_VERSION)
    assert json.loads(reader.metadata[FEATURES_KEY]) == list(NAMES)
    assert first["features"] == sent.features.tobytes()
    assert first["order"] == [2, 0]
    assert first["intervention"] == {"kind": "swap", "places": [0, 1], "propensity": 0.125}
    assert second["query_id"] == "query-6"
    assert second["request_id"] == "request-6"


def test_records_follow_the_order_of_files_and_of_places(tmp_path):
    paths = [
        written(tmp_path / f"{name}.avro", [served_record(10 * part + n) for n in range(7)], block_records=3)
        for part, name in enumerate("ba")
    ]
    assert [record.query_id for record in files.records(paths)] == [
        f"query-{10 * p + n}" for p in (0, 1) for n in range(7)
    ]


def test_a_folder_lists_its_files_by_name(tmp_path):
    for name in ("2.avro", "1.avro.part", "0.avro", "other.txt", "3.avro.part.lock"):
        (tmp_path / name).touch()
    assert [path.name for path in files.log_files(tmp_path)] == ["0.avro", "1.avro.part", "2.avro"]
    assert [path.name for path in files.log_files(tmp_path, unfinished=False)] == ["0.avro", "2.avro"]
    with pytest.raises(DataError, match="nowhere"):
        files.log_files(tmp_path / "nowhere")


def test_files_in_folders_are_listed_and_what_is_left_out_is_named(tmp_path):
    for name in ("2026/11/1.avro", "2026/10/2.avro.part", "3.avro", "3.avro.bak", ".4.avro", "_5/6.avro", "7.avro.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    notes = []
    found = [str(path.relative_to(tmp_path)) for path in files.log_files(tmp_path, notes.append)]
    assert found == ["2026/10/2.avro.part", "2026/11/1.avro", "3.avro"]
    (note,) = notes
    assert note.startswith(f"{tmp_path}: 5 left out")
    assert note.endswith(": .4.avro, 3.avro.bak, 7.avro.gz, _5, link")


def test_a_frame_counts_blocks_without_their_records(tmp_path):
    path = written(tmp_path / "a.avro.part", [served_record(n) for n in range(5)], block_records=2)
    whole = files.frame(path)
    assert (whole.records, whole.until, whole.cut_off) == (5, path.stat().st_size, False)
    path.write_bytes(path.read_bytes()[:-1])
    cut = files.frame(path)
    assert (cut.records, cut.cut_off) == (4, True)
    path.write_bytes(path.read_bytes()[:20])
    assert (files.frame(path).until, list(files.records([path])), files.feature_columns(path)) == (0, [], None)


def test_a_tail_of_zeros_is_cut_off_and_any_other_is_damage(tmp_path):
    path = written(tmp_path / "a.avro.part", [served_record(n) for n in range(3)], block_records=1)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(5000))
    assert len(list(files.records([path]))) == 3
    for tail in (b"\x02\x08abcd" + bytes(range(16)), b"\x01\x02", bytes(40) + b"x"):
        path.write_bytes(whole + tail)
        with pytest.raises(DataError, match=str(len(whole))):
            list(files.records([path]))


def test_a_first_block_that_is_half_written_is_cut_off(tmp_path):
    """It is longer than the file: so a file looks while its service writes, and after a full disk."""
    path = written(tmp_path / "a.avro.part", [served_record(1, length=2000)])
    whole = path.read_bytes()
    for end in range(5, len(whole), 9_973):
        path.write_bytes(whole[:end])
        assert list(files.records([path])) == []


def test_a_finished_file_that_is_cut_off_is_refused_with_what_can_be_kept(tmp_path):
    """Of 12 records, 8 would be read, and nobody would know. Cut after its last whole block, the file is whole again."""
    path = written(tmp_path / "a.avro", [served_record(n) for n in range(12)], block_records=4)
    whole = path.read_bytes()
    two = written(tmp_path / "two.avro", [served_record(n) for n in range(8)], block_records=4).stat().st_size
    for content in (whole[: two + 1], whole[: two + 30], whole[:-1], whole[:two] + bytes(100)):
        path.write_bytes(content)
        for reads in (lambda: list(files.records([path])), lambda: files.feature_columns(path)):
            with pytest.raises(DataError, match=rf"a\.avro: .* 8 records \(truncate -s {two}\)"):
                reads()
        assert len(list(files.read(path.rename(tmp_path / "a.avro.part")))) == 8
        (tmp_path / "a.avro.part").rename(path)
    path.write_bytes(path.read_bytes()[:two])
    assert len(list(files.records([path]))) == 8
    head = len(header(Columns(NAMES), bytes(16)))
    for end in (0, 3, head - 1, head, head + 10):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"a\.avro: .* delete it"):
            list(files.records([path]))


def test_a_wrong_length_in_the_middle_is_damage(tmp_path):
    """Else all blocks behind it would be taken for a tail that was cut off."""
    path = written(tmp_path / "a.avro", [served_record(n) for n in range(3)], block_records=1)
    whole = path.read_bytes()
    first = written(tmp_path / "first.avro", [served_record(0)], block_records=1).stat().st_size
    for length in (len(whole), 2**40):
        path.write_bytes(whole[:first] + long_bytes(1) + long_bytes(length) + whole[first:])
        with pytest.raises(DataError, match=f"byte {first}"):
            list(files.records([path]))


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "a.avro"
    path.write_bytes(b"PAR1 and so on")
    with pytest.raises(DataError, match="container"):
        list(files.records([path]))
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema({"type": "record", "name": "r", "fields": []}), [{}])
    with pytest.raises(DataError, match="metadata"):
        list(files.records([path]))
    with pytest.raises(DataError, match=r"gone\.avro"):
        list(files.records([tmp_path / "gone.avro"]))


def test_a_record_that_cannot_be_decoded_is_damage(tmp_path):
    path = written(tmp_path / "a.avro", [served_record(1)])
    whole = path.read_bytes()
    assert whole.count(b"sku-1-0") == 1
    path.write_bytes(whole.replace(b"sku-1-0", b"\xff" * 7))
    with pytest.raises(DataError, match="decoded"):
        list(files.records([path]))


def test_a_newer_version_and_bad_metadata_are_refused(tmp_path):
    path = written(tmp_path / "a.avro", [served_record()])
    whole = path.read_bytes()
    newer = long_bytes(len(VERSION_KEY)) + VERSION_KEY.encode() + b"\x02"
    assert newer + b"1" in whole
    path.write_bytes(whole.replace(newer + b"1", newer + b"2"))
    with pytest.raises(DataError, match="version 2"):
        list(files.records([path]))
    names = json.dumps(NAMES).encode()
    path.write_bytes(whole.replace(names, b"7".ljust(len(names))))
    with pytest.raises(DataError, match="columns"):
        list(files.records([path]))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"features": bytes(36)}, "36 bytes of features"),
        ({"first_stage_scores": bytes(24)}, "24 bytes of first_stage_scores"),
        ({"scores": bytes(40)}, "40 bytes of scores"),
    ],
)
def test_a_record_whose_lengths_differ_is_refused(tmp_path, changes, named):
    with written(tmp_path / "a.avro", [served_record(1)]).open("rb") as file:
        fields = next(fastavro.reader(file))
    columns = Columns(NAMES)
    assert to_record(fields, columns, "a.avro").query_id == "query-1"
    with pytest.raises(DataError, match=rf"a\.avro: .*{named}"):
        to_record({**fields, **changes}, columns, "a.avro")


def test_writing_refuses_no_record_and_other_columns(tmp_path):
    with pytest.raises(DataError):
        files.write(tmp_path / "a.avro", [])
    other = served_record(2, names=("a", "b"))
    with pytest.raises(DataError, match="query-2"):
        files.write(tmp_path / "a.avro", [served_record(1), other])
    assert not list(tmp_path.glob("*.avro"))


def test_what_is_encoded_holds_no_array():
    """A record that waits to be written keeps no request's memory, and nobody can change it."""
    sent, block = served_record(), Block()
    block.add(sent)
    before = block.encoded()
    sent.features[:] = 0.0
    assert block.encoded() == before == as_bytes(served_record())


def test_a_block_may_be_filled_again():
    block = Block()
    for number in (1, 2):
        block.clear()
        assert (block.records, block.size) == (0, 0)
        for _ in range(3):
            block.add(served_record(number, length=10**number))
            assert block.last() == as_bytes(served_record(number, length=10**number))
        assert (block.records, block.size) == (3, len(block.encoded()))
        assert block.encoded() == 3 * as_bytes(served_record(number, length=10**number))


def test_a_record_that_cannot_be_encoded_leaves_the_others():
    block = Block()
    block.add(served_record(1))
    for field in ("query_id", "request_id"):
        with pytest.raises(UnicodeEncodeError):
            block.add(served_record(2, length=500, **{field: "\ud800"}))
    block.add(served_record(3))
    assert block.records == 2
    assert block.encoded() == as_bytes(served_record(1)) + as_bytes(served_record(3))


def test_the_room_of_a_large_record_is_not_kept_and_the_block_goes_on():
    block = Block()
    block.add(served_record(1, length=200_000))
    assert block.size > 2 * 2**20
    block.clear()
    block.add(served_record(2))
    assert block.encoded() == as_bytes(served_record(2))


def test_blocks_stand_behind_a_header(tmp_path):
    """As the service writes a file: piece by piece."""
    sync, path = bytes(range(16)), tmp_path / "a.avro"
    two = as_bytes(served_record(0)) + as_bytes(served_record(1))
    parts = [
        header(Columns(NAMES), sync),
        *frame_block(2, two, sync),
        *frame_block(1, as_bytes(served_record(2)), sync),
    ]
    path.write_bytes(b"".join(parts))
    assert [record.served_at for record in files.records([path])] == [served_record(n).served_at for n in range(3)]
    assert next(files.records([path])).served_at == NOON
