"""The buffer between the request path and the writer: bounded, in order, without a lock."""

import threading

from listwright.service.served_log.taken import Buffer
from support.served import taken


def test_what_is_put_comes_out_in_order_and_room_comes_back():
    one = taken(0)
    buffer = Buffer(2 * one.size)
    assert [buffer.put(taken(n)) for n in range(3)] == [True, True, False]
    assert (len(buffer), buffer.held, buffer.crowded) == (2, 2 * one.size, True)
    assert buffer.take().query_id == "query-0"
    assert buffer.put(taken(3))
    assert [buffer.take().query_id for _ in range(2)] == ["query-1", "query-3"]
    assert (buffer.take(), buffer.held, buffer.crowded) == (None, 0, False)


def test_the_size_is_the_features_and_a_little_for_each_candidate():
    small, large = taken(length=1).size, taken(length=1001).size
    assert large - small == 1000 * (4 * 4 + 100)


def test_two_threads_lose_nothing():
    one, count = taken(0), 3000
    buffer, got = Buffer(50 * one.size), []

    def take():
        while len(got) < count:
            if (found := buffer.take()) is not None:
                got.append(found.unit)

    taker = threading.Thread(target=take)
    taker.start()
    for number in range(count):
        while not buffer.put(one._replace(unit=str(number))):
            pass
    taker.join()
    assert got == [str(number) for number in range(count)]
    assert buffer.held == 0
