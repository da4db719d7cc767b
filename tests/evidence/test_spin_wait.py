"""Looking out for an answer: who finds it does not sleep, and who looks in vain leaves it for a while."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator

import pytest

from txsaga.evidence.libpq import DEBT, PRICE, RESTS, SpinWait

TIMES = DEBT // PRICE


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
    monkeypatch.setattr("txsaga.evidence.libpq.IMPATIENCE", 60.0)
    monkeypatch.setattr("os.sched_yield", lambda: server.send(b"here"))
    SpinWait().look(readable)
    assert readable.poll(0)


def test_looking_out_in_vain_is_left_for_a_while(
    line: tuple[socket.socket, select.poll], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.evidence.libpq.IMPATIENCE", 0.002)
    lookout, (_, readable) = SpinWait(), line
    for _ in range(TIMES):
        looks.clear()
        lookout.look(readable)
        assert looks
    looks.clear()
    for _ in range(RESTS):
        lookout.look(readable)
    assert not looks
    lookout.look(readable)
    assert looks


@pytest.mark.parametrize(("found", "rests"), [(1, True), (PRICE + 1, False)])
def test_it_goes_on_only_where_it_pays(
    line: tuple[socket.socket, select.poll], monkeypatch: pytest.MonkeyPatch, found: int, rests: bool
) -> None:
    monkeypatch.setattr("txsaga.evidence.libpq.IMPATIENCE", 0.002)
    (server, readable), lookout, seen = line, SpinWait(), list[int]()
    silent = select.poll()

    def sent() -> None:
        server.send(b"x")
        seen.append(1)

    for _ in range(3 * DEBT):
        monkeypatch.setattr("os.sched_yield", lambda: None)
        lookout.look(silent)
        monkeypatch.setattr("os.sched_yield", sent)
        for _ in range(found):
            seen.clear()
            lookout.look(readable)
            here = readable.poll(0)
            if here:
                os.read(here[0][0], 1)
    assert (not seen) is rests


def test_an_answer_that_is_there_already_tells_nothing(
    line: tuple[socket.socket, select.poll], looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.evidence.libpq.IMPATIENCE", 0.002)
    (server, readable), lookout, silent = line, SpinWait(), select.poll()
    server.send(b"x")
    for _ in range(TIMES):
        lookout.look(silent)
        lookout.look(readable)
    looks.clear()
    lookout.look(silent)
    assert not looks
