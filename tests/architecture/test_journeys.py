"""The way of an ordinary call gets no longer: a mark is only ever lowered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.architecture.journeys import counted, journeys

MARKS = {
    "send and decide one message": (131, 29),
    "receive and ack one message": (86, 19),
    "a coordinated block with one INSERT": (349, 47),
    "a step of a flow with one INSERT": (236, 42),
    "the end of a flow with one journalled row": (401, 53),
    "a saga of one SQL step": (290, 44),
    "one tick of the dispatcher": (12, 5),
}
"""Calls and files; a tenth more than was counted, because threads share work."""


@pytest.mark.postgres
def test_no_journey_is_longer_than_its_mark(home_url: str, foreign_databases: Callable[[], str]) -> None:
    found = journeys(home_url, foreign_databases())
    assert found.keys() == MARKS.keys()
    longer = {
        name: (journey.calls, len(journey.files))
        for name, journey in found.items()
        if journey.calls > MARKS[name][0] or len(journey.files) > MARKS[name][1]
    }
    assert longer == {}


def test_calls_of_the_package_are_counted_and_no_others() -> None:
    from txsaga.core.topic import check_name

    journey = counted(lambda: check_name("orders"))
    assert journey.calls >= 1
    assert all("/txsaga/core/" in file for file in journey.files)
    assert counted(lambda: sorted("cba")).calls == 0
