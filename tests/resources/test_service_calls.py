"""A call of a service ends within its time-out, and says what its answer lacks."""

from __future__ import annotations

import socket
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.scene.answering import EARLY, answering
from tests.scene.dripping import certified, dripping
from txsaga.errors import ConfigError
from txsaga.resources.services import LONGEST, HttpReply, call_service


def at(port: int) -> str:
    return f"http://127.0.0.1:{port}/book"


def called(url: str, timeout: float = 10.0) -> HttpReply:
    return call_service("POST", url, b"{}", {"Content-Type": "application/json"}, timeout)


@pytest.mark.parametrize("where", ["status", "headers", "body"])
def test_a_service_that_drips_keeps_nobody_for_longer_than_the_timeout(where: str) -> None:
    with dripping(where) as port:
        begun = monotonic()
        with pytest.raises(TimeoutError, match="timed out"):
            called(at(port), timeout=1)
        assert 0.9 < monotonic() - begun < 5


def test_a_service_over_tls_is_as_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.crt"))
    with dripping("body", server) as port, pytest.raises(TimeoutError, match="timed out"):
        called(f"https://localhost:{port}/book", timeout=1)
    with dripping("nothing", server) as port:
        assert called(f"https://localhost:{port}/book").body.rstrip() == b'{"did": 1}'


def test_a_service_whose_certificate_nobody_trusts_is_not_called(tmp_path: Path) -> None:
    server, _ = certified(tmp_path)
    with dripping("nothing", server) as port, pytest.raises(OSError, match="certificate verify failed"):
        called(f"https://localhost:{port}/book")


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("more", [0, 1])
def test_an_answer_that_is_too_long_says_so(more: int, announced: bool) -> None:
    size = LONGEST + more
    length = b"Content-Length: %d\r\n" % size if announced else b""
    with answering(b"HTTP/1.0 200 OK\r\n" + length + b"\r\n" + b"x" * size) as port:
        reply = called(at(port))
    assert (reply.status, len(reply.body)) == (200, LONGEST)
    assert reply.cut == ("more than 1,000,000 bytes; answer with less" if more else "")


@pytest.mark.parametrize(
    "answer",
    [
        EARLY,
        b"HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"room": \r\n9\r\n7',
    ],
)
def test_an_answer_that_ends_early_says_so(answer: bytes) -> None:
    with answering(answer) as port:
        reply = called(at(port))
    assert (reply.status, reply.cut) == (200, "fewer bytes than it announced")


def test_an_answer_in_chunks_is_whole() -> None:
    chunks = b'9\r\n{"room": \r\n2\r\n7}\r\n0\r\n\r\n'
    with answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks) as port:
        assert called(at(port)) == HttpReply(200, b'{"room": 7}')


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        called(at(port))


def test_what_is_no_http_is_an_error_of_the_connection() -> None:
    with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as port, pytest.raises(ConnectionError, match="BadStatusLine"):
        called(at(port))


@pytest.mark.parametrize("url", ["ftp://host/x", "https:///x", "https://anna:word@host/x", "http://host:x/", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="https://host/path"):
        called(url)


def test_an_answer_that_breaks_off_is_the_yes_that_it_began_with() -> None:
    with answering(EARLY, broken_off=True) as port:
        assert called(at(port)) == HttpReply(200, b"", "fewer bytes than it announced")


def test_an_address_that_this_machine_has_no_network_for_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def with_another(host: str, port: int, **how: Any) -> list[Any]:  # as the real one
        foreign = (255, socket.SOCK_STREAM, 0, "", ("nowhere", port))
        return [foreign, *look_up(host, port, **how)]

    monkeypatch.setattr(socket, "getaddrinfo", with_another)
    with answering(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n") as port:
        assert called(at(port)).is_yes
