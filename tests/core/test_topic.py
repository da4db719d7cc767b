"""A topic takes what its type allows, a key has one queue for ever, system names are the system's."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.core.topic import (
    HALF_TOPIC,
    MAX_NAME,
    MAX_RETENTION,
    OP_TOPIC,
    PARKED_TOPIC,
    SYSTEM_TOPICS,
    SendKind,
    Topic,
    TopicType,
    check_name,
    seconds_of,
)
from txsaga.errors import ConfigError, InvalidMessage, ReservedName, TopicTypeMismatch

QIDS = st.lists(st.integers(min_value=1), min_size=1, max_size=20, unique=True).map(tuple)
LETTERS = "abcXYZ0189_-.%|"
NAMES = st.builds(str.__add__, st.sampled_from("abcXYZ0189_"), st.text(LETTERS, max_size=MAX_NAME - 1)).filter(
    lambda name: not name.lower().startswith("rmq_sys")
)

TAKES = {
    TopicType.NORMAL: {SendKind.PLAIN, SendKind.JOIN},
    TopicType.FIFO: {SendKind.PLAIN, SendKind.HALF},
    TopicType.DELAY: {SendKind.PLAIN},
    TopicType.TRANSACTION: {SendKind.HALF, SendKind.JOIN},
}


def topic(qids: tuple[int, ...] = (1, 2, 3), type: TopicType = TopicType.NORMAL) -> Topic:
    return Topic(id=1, name="orders", type=type, qids=qids)


@given(QIDS, st.text(), st.integers(min_value=0), st.integers(min_value=0))
def test_a_key_has_one_queue(qids: tuple[int, ...], key: str, turn: int, other: int) -> None:
    assert topic(qids).queue_for(key, turn) == topic(qids).queue_for(key, other)
    assert topic(qids).queue_for(key, turn) in qids


def test_a_key_has_the_queue_that_it_had_in_earlier_releases() -> None:
    qids = tuple(range(8))
    assert {key: topic(qids).queue_for(key, 0) for key in ("", "order-42", "größe")} == {
        "": 0,
        "order-42": 6,
        "größe": 1,
    }


@given(QIDS, st.integers(min_value=0, max_value=2**62))
def test_without_a_key_all_queues_take_their_turn(qids: tuple[int, ...], turn: int) -> None:
    assert [topic(qids).queue_for(None, turn + n) for n in range(len(qids))] in [
        list(qids[at:] + qids[:at]) for at in range(len(qids))
    ]


@pytest.mark.req("RMQ-65")
@pytest.mark.parametrize("type", TopicType)
@pytest.mark.parametrize("way", SendKind)
def test_a_topic_takes_what_its_type_allows(type: TopicType, way: SendKind) -> None:
    if way in TAKES[type]:
        topic(type=type).check(way)
        return
    with pytest.raises(TopicTypeMismatch, match=f"'orders' is of type {type}; {way.value} needs"):
        topic(type=type).check(way)


@pytest.mark.req("RMQ-63")
@pytest.mark.parametrize("way", [SendKind.PLAIN, SendKind.HALF])
def test_an_ordered_topic_wants_ordering_keys(way: SendKind) -> None:
    topic(type=TopicType.FIFO).admit(way, ordered=True)
    with pytest.raises(InvalidMessage, match="give each message an ordering_key"):
        topic(type=TopicType.FIFO).admit(way, ordered=False)


@pytest.mark.parametrize("type", TopicType)
@pytest.mark.parametrize("way", SendKind)
def test_only_a_topic_for_later_takes_a_delay_and_it_takes_nothing_else(type: TopicType, way: SendKind) -> None:
    if way not in TAKES[type]:
        return
    if type is TopicType.DELAY:
        topic(type=type).admit(way, ordered=False, scheduled=True)
        topic(type=type).admit(way, ordered=True, scheduled=True)
    else:
        with pytest.raises(InvalidMessage, match=f"of type {type}; delay and deliver_at are for a plain send"):
            topic(type=type).admit(way, ordered=True, scheduled=True)
    with pytest.raises(InvalidMessage, match="takes delayed messages only"):
        topic(type=TopicType.DELAY).admit(SendKind.PLAIN, ordered=False)


@pytest.mark.parametrize(
    ("retention", "seconds"),
    [
        (None, None),
        (timedelta(0), 0),
        (timedelta(milliseconds=1), 1),
        (timedelta(seconds=1.5), 2),
        (MAX_RETENTION, 36_500 * 86_400),
    ],
)
def test_a_retention_is_rounded_up_to_seconds(retention: timedelta | None, seconds: int | None) -> None:
    assert seconds_of(retention) == seconds


@pytest.mark.parametrize("retention", [3600, "1h", timedelta(microseconds=-1), MAX_RETENTION + timedelta(seconds=1)])
def test_a_retention_that_is_none_is_refused(retention: object) -> None:
    with pytest.raises(ConfigError, match=r"retention is .*; (give a timedelta|it must be between)"):
        seconds_of(retention)


@given(NAMES)
def test_an_ordinary_name_is_taken(name: str) -> None:
    if name not in SYSTEM_TOPICS:
        check_name(name)


@pytest.mark.req("RMQ-97")
@pytest.mark.parametrize(
    "name",
    [
        HALF_TOPIC,
        OP_TOPIC,
        PARKED_TOPIC,
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys",
        "rmq_sys_mine",
        "RMQ_SYS_MINE",
        "Rmq_Sys_x",
    ],
)
def test_a_system_name_is_refused(name: str) -> None:
    for what in ("topic", "group"):
        with pytest.raises(ReservedName, match=name):
            check_name(name, what=what)


@pytest.mark.req("RMQ-97")
@given(st.text(LETTERS, max_size=40), st.sets(st.sampled_from(range(7))))
def test_the_system_prefix_is_refused_in_any_case(rest: str, upper: set[int]) -> None:
    prefix = "".join(letter.upper() if at in upper else letter for at, letter in enumerate("rmq_sys"))
    with pytest.raises(ReservedName):
        check_name(prefix + rest)


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "1 to 127 characters, this one has 0"),
        ("x" * 128, "this one has 128"),
        ("two words", "letters, digits"),
        ("a/b", "letters, digits"),
        ('a"b', "letters, digits"),
        ("a\x00b", "letters, digits"),
    ],
)
def test_a_name_that_can_not_be_stored_is_refused(name: str, says: str) -> None:
    with pytest.raises(InvalidMessage, match=says):
        check_name(name)


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize("what", ["topic", "consumer group", "member"])
@pytest.mark.parametrize("name", [".", "..", "-x", "--help", "%RETRY%x", "%DLQ%x", "|", ".hidden"])
def test_a_name_that_reads_as_a_path_an_option_or_another_systems_is_refused(name: str, what: str) -> None:
    with pytest.raises(InvalidMessage, match=f"{what} name .* begins with a letter, a digit or _") as refusal:
        check_name(name, what=what, known=lambda: False)
    check_name(name, what=what)
    assert "\n" not in str(refusal.value)


@pytest.mark.req("RMQ-33")
@given(st.text(LETTERS, min_size=0, max_size=20), st.sampled_from(" /\\'\"\n\t\0;$€:@"), st.text(LETTERS))
def test_a_name_with_another_sign_is_refused(before: str, sign: str, after: str) -> None:
    with pytest.raises(InvalidMessage):
        check_name(before + sign + after)
