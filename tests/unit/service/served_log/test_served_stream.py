"""The Redis stream, against a real redis-server."""

import socketserver
import threading

import pytest

from listwright.ranking.served_log import files
from listwright.service.served_log import stream as module
from listwright.service.served_log.stream import address
from listwright.service.served_log.writer import LogWriter
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from support.redis_server import RedisServer
from support.served import counted, log_entry
from support.waiting import until


class Greeting(socketserver.BaseRequestHandler):
    """Of a server that is no Redis."""

    def handle(self):
        self.request.sendall(b"220 mail.example.org ready\r\n")


@pytest.fixture
def server(tmp_path):
    server = RedisServer(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def opened(server, tmp_path):
    """A function that opens a log with a stream on the server; all are closed at the end."""
    writers = []

    def open_one(**settings):
        telemetry = Telemetry()
        url = server.url + "?stream=shown"
        writers.append(LogWriter(Settings(bundle=tmp_path, served_stream=url, **settings), telemetry))
        return writers[-1], telemetry

    yield open_one
    for writer in writers:
        writer.close()


def query_ids(server, tmp_path):
    found = []
    with server.client() as client:
        for _, entry in client.xrange("shown"):
            (tmp_path / "entry.avro").write_bytes(entry[b"avro"])
            found += [record.query_id for record in files.read(tmp_path / "entry.avro")]
    return found


def test_files_and_the_stream_get_the_same_records(opened, server, tmp_path):
    server.start()
    (tmp_path / "log").mkdir()
    writer, _ = opened(served_log=tmp_path / "log", served_flush_s=60.0)
    for number in range(5):
        writer.note(log_entry(number, length=3 + number))
    writer.close()
    names = [f"query-{number}" for number in range(5)]
    assert query_ids(server, tmp_path) == names
    assert [record.query_id for record in files.records(files.log_files(tmp_path / "log"))] == names


def test_the_address_may_name_the_stream():
    assert address("redis://:secret@host:1/2?stream=a%20b&protocol=3") == ("redis://:secret@host:1/2?protocol=3", "a b")
    assert address("redis://host") == ("redis://host", module.STREAM)


def test_records_arrive_in_order_each_as_a_file_of_its_own(server, opened, tmp_path):
    server.start()
    writer, telemetry = opened()
    for number in range(150):
        writer.note(log_entry(number))
    until(lambda: counted(telemetry, "records", sink="stream") == 150)
    assert query_ids(server, tmp_path) == [f"query-{number}" for number in range(150)]
    assert counted(telemetry, "bytes", sink="stream") > 150 * 64


def test_the_stream_keeps_about_the_length_that_is_set(server, opened):
    server.start()
    writer, telemetry = opened(served_stream_length=10)
    for number in range(500):
        writer.note(log_entry(number))
    until(lambda: counted(telemetry, "records", sink="stream") == 500)
    with server.client() as client:
        assert 10 <= client.xlen("shown") < 300  # trimmed by whole nodes of a hundred entries


def test_records_wait_for_a_server_that_is_not_there(server, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PAUSES_S", (0.05,))
    server.start()
    writer, telemetry = opened()
    writer.note(log_entry(0))
    until(lambda: counted(telemetry, "records", sink="stream") == 1)
    server.stop()
    for number in range(1, 4):
        writer.note(log_entry(number))
    server.start()
    until(lambda: counted(telemetry, "records", sink="stream") == 4)
    assert query_ids(server, tmp_path) == ["query-1", "query-2", "query-3"]


@pytest.mark.parametrize("database", [0, 99])
def test_a_server_that_is_none_or_lacks_the_database_is_asked_again(server, tmp_path, monkeypatch, database):
    monkeypatch.setattr(module, "PAUSES_S", (0.01,))
    server.start()
    url = f"redis://127.0.0.1:{server.port}/{database}?stream=shown"
    telemetry = Telemetry()
    if not database:
        server.stop()
        monkeypatch.setattr(
            socketserver.TCPServer, "allow_reuse_address", True
        )  # the stopped server's connections linger
        not_redis = socketserver.TCPServer(("127.0.0.1", server.port), Greeting)
        threading.Thread(target=not_redis.serve_forever, daemon=True).start()
    writer = LogWriter(Settings(bundle=tmp_path, served_stream=url), telemetry)
    writer.note(log_entry(0))
    until(lambda: writer._stream._failures >= 3)
    assert writer._stream._thread.is_alive()
    if not database:
        not_redis.shutdown()
        not_redis.server_close()
        server.start()
        until(lambda: counted(telemetry, "records", sink="stream") == 1)
    writer.close()


def test_a_buffer_that_is_full_drops_and_counts(server, opened, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1)
    writer, telemetry = opened()
    writer.note(log_entry(0))
    until(lambda: counted(telemetry, "dropped", reason="stream_full") == 1)


def test_what_the_server_refuses_is_dropped_and_counted(server, opened):
    server.start("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    writer, telemetry = opened()
    writer.note(log_entry(0))
    until(lambda: counted(telemetry, "dropped", reason="stream_refused") == 1)
    assert counted(telemetry, "records", sink="stream") == 0


def test_the_end_does_not_wait_for_a_server_that_is_not_there(server, opened):
    writer, telemetry = opened()
    for number in range(3):
        writer.note(log_entry(number))
    writer.close()
    assert counted(telemetry, "dropped", reason="closing") == 3
