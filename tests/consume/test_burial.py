"""A message that fails to the end: to the backout topic, else to the dead letters, else it is lost with a word."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from tests.scene.shop import NEWS, Shop
from tests.scene.worker import GROUP, bodies, letters, told, worker, wrote
from txsaga.consume.dead_letter import CAUSE
from txsaga.errors import UnknownTopic

FAILED = "failed"


def fail(shop: Shop, cause: str = "no chair is left", *, times: int = 1, **options: object) -> None:
    """Let work on everything that comes fail, so many times."""
    for _ in range(times):
        for message in worker(shop, **options).messages(wait=0):
            with message:
                raise ValueError(cause)
        shop.later(600.0)


@pytest.mark.req("IBM-61", "IBM-62")
def test_the_last_failure_moves_a_message_to_the_dead_letters(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=3)
    wrote(moody_shop, "a", key="42", tag="red", headers={"colour": "red"})
    fail(moody_shop, times=2)
    assert letters(moody_shop) == []
    fail(moody_shop)
    assert bodies(moody_shop) == []
    (letter,) = letters(moody_shop)
    assert (letter.group, letter.topic, letter.attempts) == (GROUP, NEWS, 3)
    assert letter.cause == "ValueError: no chair is left"
    assert [entry["attempts"] for entry in letter.history] == [1, 2, 3]
    assert letter.message == moody_shop.read(NEWS)[0]
    assert told(caplog, logging.ERROR, "is dead-lettered: ValueError: no chair is left")


@pytest.mark.req("IBM-62")
def test_a_backout_topic_gets_the_message_and_the_reason(moody_shop: Shop) -> None:
    moody_shop.broker.create_topic(FAILED, "normal", queues=2)
    moody_shop.broker.create_group(GROUP, max_attempts=3, backout=FAILED)
    wrote(moody_shop, "a", key="42", tag="red", headers={"colour": "red"}, ordering_key="k")
    (sent,) = moody_shop.read(NEWS)
    fail(moody_shop, times=3)
    assert (bodies(moody_shop), letters(moody_shop)) == ([], [])
    (moved,) = moody_shop.read(FAILED)
    assert (moved.body, moved.key, moved.tag, moved.ordering_key) == (b"a", "42", "red", "k")
    assert moved.headers == {
        "colour": "red",
        "backout-group": GROUP,
        "backout-topic": NEWS,
        "backout-message": sent.id,
        "backout-attempts": "3",
        "backout-cause": "ValueError: no chair is left",
    }


@pytest.mark.req("IBM-62")
def test_a_group_without_either_loses_the_message_with_a_word(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=1, dead_letters=False)
    wrote(moody_shop, "a")
    (sent,) = moody_shop.read(NEWS)
    fail(moody_shop)
    assert (bodies(moody_shop), letters(moody_shop)) == ([], [])
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]  # once
    assert said == f"message {sent.id} of group {GROUP} is lost: ValueError: no chair is left"


@pytest.mark.req("IBM-63")
def test_a_group_without_either_is_warned_about(moody_shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    moody_shop.broker.create_group("endless", max_attempts=None, dead_letters=False)
    moody_shop.broker.create_group("careful")
    assert not caplog.records
    moody_shop.broker.create_group(GROUP, max_attempts=4, dead_letters=False)
    assert told(caplog, logging.WARNING, f"group {GROUP} has neither a backout topic nor dead letters")
    caplog.clear()
    worker(moody_shop)
    assert told(caplog, logging.WARNING, "fails 4 times is lost")


def test_a_group_needs_a_backout_topic_that_is_there(moody_shop: Shop) -> None:
    with pytest.raises(UnknownTopic, match=FAILED):
        moody_shop.broker.create_group(GROUP, backout=FAILED)
    assert moody_shop.store.groups.find(GROUP) is None


@pytest.mark.req("IBM-62")
@pytest.mark.parametrize("type", [None, "transaction", "fifo", "delay"])
def test_what_the_backout_topic_does_not_take_goes_to_the_dead_letters(
    moody_shop: Shop, caplog: pytest.LogCaptureFixture, type: str | None
) -> None:
    if type is not None:
        moody_shop.broker.create_topic(FAILED, type, queues=1)
    worker(moody_shop)
    moody_shop.store.groups.alter(GROUP, {"max_attempts": 1, "backout": FAILED, "dead_letters": False})
    wrote(moody_shop, "a")
    fail(moody_shop)
    assert bodies(moody_shop) == []
    assert [letter.message.text() for letter in letters(moody_shop)] == ["a"]
    assert told(caplog, logging.ERROR, "is dead-lettered")


@pytest.mark.req("IBM-61", "IBM-62")
def test_members_that_are_lost_at_each_delivery_use_the_attempts_up(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=3)
    wrote(moody_shop, "a", "b")
    seen = []
    for _ in range(8):
        for message in worker(moody_shop).receive():  # and is never heard of again
            seen.append((message.text(), message.attempts))
        moody_shop.later(600.0)
    assert sorted(seen) == [(text, attempts) for text in "ab" for attempts in (1, 2, 3)]
    assert bodies(moody_shop) == []
    assert {letter.message.text(): letter.attempts for letter in letters(moody_shop)} == {"a": 3, "b": 3}
    assert {letter.history[-1]["attempts"] for letter in letters(moody_shop)} == {3}
    assert "not acknowledged" in letters(moody_shop)[0].cause


@pytest.mark.req("IBM-61", "IBM-62")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_nothing_is_given_up_that_was_never_handed_out(moody_shop: Shop, most: int, ordered: bool) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=most, ordered=ordered)
    wrote(moody_shop, "poison", "b", "c")
    seen, stalled = list[str](), []
    for _ in range(12):
        stalled.append(worker(moody_shop).messages(wait=0))  # a loop that nobody leaves gives nothing back
        for message in stalled[-1]:
            seen.append(message.text())
            if message.text() == "poison":
                break
            message.ack()
        moody_shop.later(600.0)
    assert seen.count("poison") == most
    assert sorted({*seen} - {"poison"}) == ["b", "c"]
    assert [letter.message.text() for letter in letters(moody_shop)] == ["poison"]


def test_whoever_is_interrupted_uses_no_attempts_up(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=1)
    wrote(moody_shop, "a")
    for _ in range(3):
        (message,) = worker(moody_shop).receive()
        with pytest.raises(KeyboardInterrupt), message:
            raise KeyboardInterrupt
    assert letters(moody_shop) == []
    assert bodies(moody_shop) == ["a"]


def test_a_replayed_letter_is_the_same_message_with_all_its_attempts(moody_shop: Shop) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=2)
    wrote(moody_shop, "a", key="42")
    (sent,) = moody_shop.read(NEWS)
    fail(moody_shop, "first", times=2)
    (letter,) = letters(moody_shop)
    moody_shop.store.dead_letters.replay([letter.id])
    (again,) = worker(moody_shop).receive()
    assert (again.delivered, again.attempts) == (sent, 1)
    again.nack("second", delay=timedelta(0))
    fail(moody_shop, "third")
    (letter,) = letters(moody_shop)
    causes = ["ValueError: first", "ValueError: first", "second", "ValueError: third"]
    assert [entry["cause"] for entry in letter.history] == causes
    assert letter.message == sent


@pytest.mark.parametrize("times", [1, 2])
def test_a_cause_is_kept_as_text_that_a_database_takes(moody_shop: Shop, times: int) -> None:
    moody_shop.broker.create_group(GROUP, max_attempts=2)
    wrote(moody_shop, "a")
    fail(moody_shop, "a\0b\ud800c" + "x" * 5000, times=2)
    (letter,) = letters(moody_shop)
    for cause in (letter.cause, *(str(entry["cause"]) for entry in letter.history)):
        assert len(cause) == CAUSE
        assert cause.startswith("ValueError: a�b?c")
        cause.encode()
