"""
Turns a user's message into a half.

The topic and queue are fixed here, before the decision, so that a commit only makes stored messages visible.
Nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import ceil

from txsaga.checkback import profile as immunity
from txsaga.checkback.profile import CheckProfile
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message, made_of
from txsaga.core.records import Group, Half, Row
from txsaga.core.topic import SendKind
from txsaga.errors import InvalidMessage
from txsaga.messages.topics import Topics

logger = logging.getLogger("txsaga")


def as_message(topic: object, body: bytes | None, options: Mapping[str, object]) -> Message:
    """Build a message from the arguments of a send; `Topics.admit` checks every field."""
    if isinstance(topic, Message):
        if body is not None or options:
            raise InvalidMessage("a Message holds everything; give the body and the options to it")
        return topic
    if not isinstance(topic, str):
        raise InvalidMessage(
            f"one message is sent at a time, not a {type(topic).__name__}; "
            "several messages under one decision go into producer.transaction()"
        )
    if body is None:
        raise InvalidMessage('this message has no body; give it as bytes: send(topic, body), where b"" is an empty one')
    return made_of(topic, body, options)


def half_of(topics: Topics, group: Group, message: Message, seconds: object) -> tuple[Message, Half]:
    """Lay out a message as a half with its immunity; return the admitted message too."""
    message, qid = topics.admit(message, SendKind.HALF)
    own = admit(group, immunity.chosen(seconds, message.headers))
    return message, Half(group.id, [Row(qid, 0, 1, lay_out_one(message))], None, own)


def admit(group: Group, seconds: int | None) -> int | None:
    """Return the effective immunity, for the end and for the check: at least the minimum age of its group.

    Raise if no check could ever follow it; warn if it outlasts `max_checks` intervals.
    """
    if seconds is None:
        return None
    profile = CheckProfile().of_group(group.checks)
    if seconds > profile.total_limit.total_seconds():
        raise InvalidMessage(
            f"immunity is {seconds} seconds, but group {group.name!r} gives a transaction up after "
            f"{profile.total_limit.total_seconds():.0f}: it would never be checked; choose a shorter one"
        )
    if seconds > profile.asking.total_seconds():
        logger.warning(
            "immunity %d s is longer than max_checks x interval (%d x %.0f s = %.0f s): the first check comes after it",
            seconds,
            profile.max_checks,
            profile.interval.total_seconds(),
            profile.asking.total_seconds(),
            extra={"group": group.name},
        )
    return max(seconds, ceil(profile.min_age.total_seconds()))
