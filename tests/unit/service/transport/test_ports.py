"""The port of the settings, on each address of their host."""

import socket

import pytest

from listwright.service.transport.server import bind_ports

V4, V6 = "127.0.0.1", "::1"


def has_ipv6():
    try:
        with socket.create_server((V6, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.fixture
def ports():
    """Binds and listens; closes what is open in the end."""
    found = []

    def bind(host, port=0):
        found.extend(bind_ports(host, port))
        for one in found:
            one.listen()
        return {one.getsockname()[1] for one in found}

    yield bind
    for one in found:
        one.close()


def answers(host, port):
    try:
        socket.create_connection((host, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "answering"),
    [
        pytest.param("::", [True, True], marks=needs_ipv6),
        pytest.param("0:0:0:0:0:0:0:0", [True, True], marks=needs_ipv6),
        pytest.param("::1", [False, True], marks=needs_ipv6),
        ("0.0.0.0", [True, False]),
        ("127.0.0.1", [True, False]),
    ],
)
def test_families_of_a_host(ports, host, answering):
    (port,) = ports(host)
    assert [answers(V4, port), answers(V6, port)] == answering


def test_a_name_is_bound_at_each_of_its_addresses_and_one_port(ports, monkeypatch):
    def resolve(host, port, **_):
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", port, 0, 0)),  # as where there is no IPv6
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", port)),
        ]

    monkeypatch.setattr("listwright.service.transport.server.getaddrinfo", resolve)
    (port,) = ports("localhost")
    assert [answers("127.0.0.1", port), answers("127.0.0.2", port), answers("127.0.0.3", port)] == [True, True, False]


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "[::]"])
def test_a_host_that_is_not_here_is_an_error(ports, host):
    with pytest.raises(OSError):  # noqa: PT011 - of several kinds
        ports(host)


def test_a_port_in_use_is_an_error_and_leaves_nothing_open(ports):
    (port,) = ports("127.0.0.1")
    with pytest.raises(OSError, match="in use"):
        ports("127.0.0.1", port)
