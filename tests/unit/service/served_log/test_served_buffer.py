"""The buffer between the thread that answers and the one that writes: bounded, in order, without a lock."""

import threading

from listwright.ranking.served.encoding import encode
from listwright.ranking.served.record import columns_of
from listwright.service.served_log.buffer import Buffer, Waiting
from support.served import served_record


def waiting(number=0, **changes):
    record = served_record(number, **changes)
    return Waiting(str(number), columns_of(record), encode(record))


def test_what_is_put_comes_out_in_order_and_room_comes_back():
    size = waiting(0).record.size
    buffer = Buffer(2 * size)
    assert [buffer.put(waiting(n)) for n in range(3)] == [True, True, False]
    assert (len(buffer), buffer.held) == (2, 2 * size)
    assert buffer.take().fingerprint == "0"
    assert buffer.put(waiting(3))
    assert [buffer.take().fingerprint for _ in range(2)] == ["1", "3"]
    assert (buffer.take(), buffer.held) == (None, 0)


def test_two_threads_lose_nothing():
    one, count = waiting(0), 3000
    buffer, got = Buffer(50 * one.record.size), []

    def take():
        while len(got) < count:
            if (found := buffer.take()) is not None:
                got.append(found.fingerprint)

    taker = threading.Thread(target=take)
    taker.start()
    for number in range(count):
        while not buffer.put(one._replace(fingerprint=str(number))):
            pass
    taker.join()
    assert got == [str(number) for number in range(count)]
    assert buffer.held == 0
