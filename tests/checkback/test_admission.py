"""How many questions a member takes up: as many as its threads begin soon."""

from __future__ import annotations

import pytest

from txsaga.checkback.answering import FASTEST, MOST, SOON, AdmissionWindow

INSTANT = SOON / FASTEST / 2


def test_room_starts_with_the_threads_and_grows_fast_while_nothing_waits() -> None:
    room = AdmissionWindow(4)
    seen = [room.places]
    room.waited = INSTANT
    for _ in range(4):
        room.learn(room.places, late=0)
        seen.append(room.places)
    assert seen == [4, 32, 256, MOST, MOST]


def test_room_grows_by_what_was_answered_and_not_by_what_still_waits() -> None:
    room = AdmissionWindow(4)
    room.waited = INSTANT
    room.learn(1, late=0)
    assert room.places == 4 + FASTEST - 1


def test_where_a_longer_wait_would_be_too_long_room_only_doubles() -> None:
    """A wait grows with the room: eight times as much would begin late."""
    room = AdmissionWindow(4)
    room.waited = SOON / FASTEST
    room.learn(4, late=0)
    assert room.places == 8


@pytest.mark.req("RMQ-93")
@pytest.mark.parametrize(("waited", "late"), [(SOON, 0), (INSTANT, 1)], ids=["waited", "late"])
def test_room_is_halved_where_questions_wait_and_never_below_the_threads(waited: float, late: int) -> None:
    room = AdmissionWindow(4)
    room.places, room.waited = 20, waited
    seen = []
    for _ in range(4):
        room.learn(5, late=late)
        seen.append(room.places)
    assert seen == [10, 5, 4, 4]


def test_more_threads_than_the_most_are_all_used() -> None:
    room = AdmissionWindow(MOST + 1)
    room.waited = INSTANT
    room.learn(MOST, late=0)
    assert room.places == MOST + 1
