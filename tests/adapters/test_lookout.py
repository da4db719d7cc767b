"""Looking out for an answer: who finds it does not sleep, and who looks in vain leaves it for a while."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from txsaga.adapters.lookout import RESTS, VAIN, Lookout


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, select.poll]]:
    here, there = socket.socketpair()
    with here, there:
        readable = select.poll()
        readable.register(here, select.POLLIN)
        yield there, readable


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grow with each look that found nothing yet."""
    seen: list[int] = []
    monkeypatch.setattr("os.sched_yield", lambda: seen.append(1))
    return seen


def test_an_answer_is_found_as_soon_as_it_comes(
    line: tuple[socket.socket, select.poll], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, readable = line
    monkeypatch.setattr("txsaga.adapters.lookout.IMPATIENCE", 60.0)
    monkeypatch.setattr("os.sched_yield", lambda: server.send(b"here"))
    Lookout().look(readable)
    assert readable.poll(0)


def test_looking_out_in_vain_is_left_for_a_while(
    line: tuple[socket.socket, select.poll], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.adapters.lookout.IMPATIENCE", 0.002)
    lookout, (_, readable) = Lookout(), line
    for _ in range(VAIN):
        looks.clear()
        lookout.look(readable)
        assert looks
    looks.clear()
    for _ in range(RESTS):
        lookout.look(readable)
    assert not looks
    lookout.look(readable)
    assert looks


def test_an_answer_in_between_keeps_it_looking(
    line: tuple[socket.socket, select.poll], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.adapters.lookout.IMPATIENCE", 0.002)
    (server, readable), lookout = line, Lookout()
    for _ in range(VAIN - 1):
        lookout.look(readable)
    server.send(b"x")
    lookout.look(readable)
    looks.clear()
    silent = select.poll()
    for _ in range(VAIN):
        looks.clear()
        lookout.look(silent)
        assert looks
