"""A message that can't be stored is refused before anything is, with the number that is too big."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txsaga.core.message import (
    MAX_BODY,
    MAX_DELAY,
    MAX_HEADERS,
    MAX_KEY,
    MAX_TAG,
    Message,
    as_message,
)
from txsaga.core.validation import validate
from txsaga.errors import InvalidMessage

TEXTS = st.none() | st.text(max_size=60)
HEADERS = st.none() | st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5)
AWARE = st.datetimes(timezones=st.timezones()).filter(lambda moment: 2 < moment.year < 9998)
LIMITS = {"key": MAX_KEY, "tag": MAX_TAG, "ordering_key": MAX_KEY, "unique_key": MAX_KEY}


def message(**fields: object) -> Message:
    """Make a message, of the wrong types too."""
    return Message(**{"topic": "orders", "body": b"body", **fields})  # type: ignore[arg-type]  # on purpose


@given(st.binary(max_size=200), TEXTS, TEXTS, HEADERS, TEXTS, TEXTS)
def test_an_ordinary_message_is_taken(
    body: bytes,
    key: str | None,
    tag: str | None,
    headers: dict[str, str] | None,
    ordering_key: str | None,
    unique_key: str | None,
) -> None:
    validate(
        Message(
            "orders",
            body,
            key=key,
            tag=tag,
            headers=headers,
            ordering_key=ordering_key,
            unique_key=unique_key,
        )
    )


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize("size", [MAX_BODY + 1, MAX_BODY * 2])
def test_a_body_that_is_too_big_is_refused_with_its_size(size: int) -> None:
    validate(Message("orders", bytes(MAX_BODY)))
    with pytest.raises(InvalidMessage, match=f"the body has {size:,} bytes; at most {MAX_BODY:,}"):
        validate(Message("orders", bytes(size)))


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize("field", LIMITS)
@given(over=st.integers(min_value=1, max_value=3000))
def test_a_text_that_is_too_long_is_refused_with_its_size(field: str, over: int) -> None:
    most = LIMITS[field]
    validate(message(**{field: "x" * most}))
    with pytest.raises(InvalidMessage, match=rf"{most + over:,} bytes; at most {most:,}"):
        validate(message(**{field: "x" * (most + over)}))


@pytest.mark.req("RMQ-33")
def test_what_counts_is_bytes_not_characters() -> None:
    validate(message(tag="ä" * (MAX_TAG // 2)))
    with pytest.raises(InvalidMessage, match="the tag has 256 bytes"):
        validate(message(tag="ä" * 128))


@pytest.mark.req("RMQ-33")
@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.integers(min_value=1, max_value=20_000), min_size=1, max_size=5)
)
def test_headers_count_together(sizes: dict[str, int]) -> None:
    headers = {name: "x" * size for name, size in sizes.items()}
    total = sum(len(name.encode()) + size for name, size in sizes.items())
    if total <= MAX_HEADERS:
        validate(message(headers=headers))
        return
    with pytest.raises(InvalidMessage, match=f"the block of headers has {total:,} bytes"):
        validate(message(headers=headers))


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Message("", b"body"), "the topic is empty"),
        (message(body="text"), "the body is str, not bytes"),
        (message(body=bytearray(b"x")), "the body is bytearray, not bytes"),
        (message(key=7), "the key is int, not str"),
        (message(tag=b"x"), "the tag is bytes, not str"),
        (message(headers={"a": 1}), "headers map str to str"),
        (message(headers={1: "a"}), "headers map str to str"),
    ],
)
def test_a_message_of_the_wrong_shape_is_refused(bad: Message, says: str) -> None:
    with pytest.raises(InvalidMessage, match=says):
        validate(bad)


@pytest.mark.req("RMQ-33")
@pytest.mark.parametrize("field", [*LIMITS, "headers"])
def test_text_that_is_no_text_is_refused(field: str) -> None:
    lone = "\ud800"
    with pytest.raises(InvalidMessage, match="UTF-8"):
        validate(message(**{field: {"name": lone} if field == "headers" else lone}))


@given(st.datetimes())
def test_a_time_without_zone_is_refused(moment: datetime) -> None:
    with pytest.raises(InvalidMessage, match="no time zone"):
        validate(message(deliver_at=moment))


@pytest.mark.parametrize("year", [1, 9999])
@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_a_time_that_some_zone_has_no_year_for_is_refused(year: int, hours: int) -> None:
    month, day = (1, 1) if year == 1 else (12, 31)
    with pytest.raises(InvalidMessage, match="give a year between 2 and 9998"):
        validate(message(deliver_at=datetime(year, month, day, 12, tzinfo=timezone(timedelta(hours=hours)))))


@given(AWARE)
def test_a_time_with_a_zone_is_taken(moment: datetime) -> None:
    validate(message(deliver_at=moment))


def test_pendulum_is_taken() -> None:
    validate(message(deliver_at=pendulum.datetime(2026, 1, 1)))


@given(st.timedeltas())
def test_a_delay_lies_between_nothing_and_forty_days(delay: timedelta) -> None:
    if timedelta(0) < delay <= MAX_DELAY:
        validate(message(delay=delay))
        return
    with pytest.raises(InvalidMessage, match="40 days"):
        validate(message(delay=delay))


def test_two_times_are_one_too_many() -> None:
    with pytest.raises(InvalidMessage, match="give one"):
        validate(message(delay=timedelta(seconds=1), deliver_at=datetime(2026, 1, 1, tzinfo=UTC)))


@given(st.text())
def test_text_becomes_a_body(text: str) -> None:
    assert Message.text("orders", text, key="k") == Message("orders", text.encode(), key="k")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_json_becomes_a_body_without_spaces(value: object) -> None:
    made = Message.json("orders", value, tag="t")
    validate(made)
    assert made.tag == "t"


def test_a_send_takes_bytes_text_or_json() -> None:
    assert as_message("orders", b"a chair", {"key": "k"}) == Message("orders", b"a chair", key="k")
    assert as_message("orders", None, {"text": "a chair", "key": "k"}) == Message.text("orders", "a chair", key="k")
    assert as_message("orders", None, {"json": None}) == Message("orders", b"null")


@pytest.mark.parametrize(
    ("body", "options"), [(None, {}), (b"", {"text": ""}), (b"", {"json": 1}), (None, {"text": "", "json": 1})]
)
def test_a_message_has_one_body(body: bytes | None, options: dict[str, object]) -> None:
    with pytest.raises(InvalidMessage, match="a message has one body"):
        as_message("orders", body, options)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Message.text("orders", 5), "the text is int, not str"),  # type: ignore[arg-type]
        (lambda: Message.text("orders", "\ud800"), "can't be stored as UTF-8"),
        (lambda: Message.json("orders", object()), "can't be written as JSON"),
        (lambda: Message.json("orders", float("nan")), "can't be written as JSON"),
        (lambda: Message.json("orders", "\ud800"), "can't be written as JSON"),
    ],
)
def test_what_is_no_text_or_no_json_is_refused(make: Callable[[], Message], line: str) -> None:
    with pytest.raises(InvalidMessage, match=line):
        make()
