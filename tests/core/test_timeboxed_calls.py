"""Calls that may never answer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from txsaga.core.timeboxed_calls import TimeboxedCalls
from txsaga.errors import StoreUnavailable

WAITED = 0.5


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Give what a call hangs on, until the test is over."""
    monkeypatch.setattr("txsaga.core.timeboxed_calls.PATIENCE", WAITED)
    event = threading.Event()
    yield event
    event.set()


def test_several_that_hang_are_waited_for_together(hanging: threading.Event) -> None:
    beside, begun = TimeboxedCalls(), time.monotonic()
    answers = [beside.begin(whom, lambda: hanging.wait(30)) for whom in "abcdef"]
    for answer in answers:
        with pytest.raises(StoreUnavailable, match="does not answer"):
            answer()
    assert time.monotonic() - begun < 3 * WAITED


def test_one_that_hangs_is_called_again_when_it_has_answered(hanging: threading.Event) -> None:
    beside = TimeboxedCalls()
    with pytest.raises(StoreUnavailable):
        beside.begin("a", lambda: hanging.wait(30))()
    with pytest.raises(StoreUnavailable):
        beside.begin("a", lambda: True)
    assert beside.begin("b", lambda: 7)() == 7
    hanging.set()
    until = time.monotonic() + 10
    while True:
        try:
            assert beside.begin("a", lambda: 8)() == 8
            return
        except StoreUnavailable:
            assert time.monotonic() < until


def test_what_hangs_in_a_process_does_not_hang_in_its_child(
    hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = TimeboxedCalls()
    with pytest.raises(StoreUnavailable):
        beside.begin("a", lambda: hanging.wait(30))()
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert beside.begin("a", lambda: 9)() == 9
