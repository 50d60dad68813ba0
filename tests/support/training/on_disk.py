"""Datasets in memory as datasets on disk."""

from dataclasses import replace

import numpy as np

from listwright.training.data.shards.shards import QueryBlock, ShardWriter, open_shards


def on_disk(data, folder):
    """The same queries, with rows that are read from two shards."""
    folder.mkdir(parents=True)
    writer = ShardWriter(folder)
    half = data.offsets[len(data) // 2]
    for rows, queries in (
        (slice(0, half), slice(0, len(data) // 2)),
        (slice(half, data.rows), slice(len(data) // 2, len(data))),
    ):
        block = QueryBlock(data.features[rows], data.labels[rows], data.lengths[queries], data.qids[queries])
        writer.add(block, int(rows.stop))
        writer._write(int(rows.stop))
    writer.finish({})
    found = open_shards(folder)
    np.testing.assert_array_equal(found.features[:], data.features)
    return replace(data, features=found.features)
