"""Work in a thread beside."""

from __future__ import annotations

from threading import Event

import pytest

from txsaga.resources.two_phase import started


def test_what_is_begun_goes_on_side_by_side() -> None:
    here, there = Event(), Event()

    def meet(mine: Event, other: Event) -> bool:
        mine.set()
        return other.wait(10)

    first, second = started(lambda: meet(here, there)), started(lambda: meet(there, here))
    assert first.result(10)
    assert second.result(10)


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        started(lambda: 1 / 0).result(10)
