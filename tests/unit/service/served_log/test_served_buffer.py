"""The buffer between the thread that answers and the one that writes: bounded, in order, without a lock."""

import threading

import pytest

from listwright.ranking.candidates import CandidateList
from listwright.service.served_log.writer import Buffer, size_of
from support.served import log_entry


def test_what_is_put_comes_out_in_order_and_room_comes_back():
    size = size_of(log_entry(0))
    assert size > log_entry(0).candidates.features.nbytes
    long = CandidateList(log_entry(0).candidates.features, tuple(f"{place:500}" for place in range(4)))
    assert size_of(log_entry(0, candidates=long)) >= size + 4 * 500, "a caller's long ids count"
    buffer = Buffer(2 * size)
    assert [buffer.put(log_entry(n)) for n in range(3)] == [True, True, False]
    assert (len(buffer), buffer.held) == (2, 2 * size)
    assert buffer.take().query_id == "query-0"
    assert buffer.put(log_entry(3))
    assert [buffer.take().query_id for _ in range(2)] == ["query-1", "query-3"]
    assert (buffer.take(), buffer.held) == (None, 0)


@pytest.mark.nightly
def test_two_threads_lose_nothing():
    one, count = log_entry(0), 3000
    buffer, got = Buffer(50 * size_of(one)), []

    def take():
        while len(got) < count:
            if (found := buffer.take()) is not None:
                got.append(found.query_id)

    taker = threading.Thread(target=take)
    taker.start()
    for number in range(count):
        while not buffer.put(one._replace(query_id=str(number))):
            pass
    taker.join()
    assert got == [str(number) for number in range(count)]
    assert buffer.held == 0
