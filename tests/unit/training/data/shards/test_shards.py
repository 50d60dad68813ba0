"""A folder of shards: what was written is read, what was interrupted goes on, what was damaged is named."""

import json

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.training.data.shards import shards
from listwright.training.data.shards.shards import QueryBlock, ShardWriter, open_shards


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 4 * 3 * 10)  # ten rows of three columns


def blocks(count=6, seed=0, weights=False):
    """Blocks of two queries each, the later ones wider."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        lengths = rng.integers(1, 5, size=2)
        rows = int(lengths.sum())
        features = rng.normal(size=(rows, 2 + number // 3)).astype(np.float32)
        labels = rng.integers(0, 3, size=rows).astype(np.int32)
        yield QueryBlock(
            features, labels, lengths, [f"q{number}a", f"q{number}b ü"], rng.random(rows) if weights else None
        )


def written(folder, given, **facts):
    folder.mkdir(exist_ok=True)
    writer = ShardWriter(folder)
    for number, block in enumerate(given):
        writer.add(block, number + 1)
    writer.finish(facts)
    return open_shards(folder)


@pytest.mark.parametrize("weights", [False, True])
def test_what_was_written_is_read(tmp_path, weights):
    given = list(blocks(weights=weights))
    found = written(tmp_path / "s", given, said="this")
    expected = np.concatenate([np.pad(b.features, ((0, 0), (0, 3 - b.features.shape[1]))) for b in given])
    np.testing.assert_array_equal(found.features[:], expected)
    some = np.array([0, 1, 2, len(expected) - 1, 5])
    np.testing.assert_array_equal(found.features.pick(some), expected[some])
    assert found.labels.tolist() == np.concatenate([b.labels for b in given]).tolist()
    assert np.diff(found.offsets).tolist() == np.concatenate([b.lengths for b in given]).tolist()
    assert list(found.qids) == [qid for b in given for qid in b.qids]
    assert found.facts == {"said": "this"}
    assert (found.weights is not None) == weights
    assert len(list((tmp_path / "s").glob("*.f32"))) > 1
    assert not (tmp_path / "s" / shards.STATE).exists()


def test_an_interrupted_writer_goes_on_behind_its_last_whole_shard(tmp_path):
    given, folder = list(blocks()), tmp_path / "s"
    folder.mkdir()
    first = ShardWriter(folder)
    for number, block in enumerate(given[:4]):
        first.add(block, number + 1)
    place = first.place
    assert 0 < place < 4  # the last block waits, and is lost
    with pytest.raises(DataError, match=r"shards\.json: cannot be read"):
        open_shards(folder)
    again = ShardWriter(folder)
    assert again.place == place
    assert again.rows == sum(len(block.labels) for block in given[:place])
    assert list(again.qids()) == [qid for block in given[:place] for qid in block.qids]
    for number, block in enumerate(given[place:], start=place):
        again.add(block, number + 1)
    again.finish({})
    whole = written(tmp_path / "t", given)
    np.testing.assert_array_equal(open_shards(folder).features[:], whole.features[:])


def cut(path):
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut, flip, lambda path: path.unlink()])
@pytest.mark.parametrize("name", ["rows-00001.f32", "rows-00002.npz", "shards.json"])
def test_damage_is_named(tmp_path, damage, name):
    written(tmp_path / "s", blocks())
    damage(tmp_path / "s" / name)
    with pytest.raises(DataError, match=name):
        open_shards(tmp_path / "s")


def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_signal(tmp_path):
    found = written(tmp_path / "s", blocks())
    cut(tmp_path / "s" / "rows-00001.f32")
    with pytest.raises(DataError, match=r"rows-00001\.f32: is shorter than it was written: delete the folder"):
        found.features[:]
    (tmp_path / "s" / "rows-00001.f32").unlink()
    with pytest.raises(DataError, match=r"rows-00001\.f32: cannot be read: No such file"):
        found.features[0]


def test_another_format_is_refused(tmp_path):
    written(tmp_path / "s", blocks())
    path = tmp_path / "s" / "shards.json"
    whole = json.loads(path.read_text())
    whole.pop("sha256")
    whole["format"] = 0
    path.write_text(json.dumps({**whole, "sha256": shards._of(whole)}))
    with pytest.raises(DataError, match="has format 0"):
        open_shards(tmp_path / "s")
