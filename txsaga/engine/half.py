"""
From a message to a half: what is refused, what is dropped, and which queue it will be delivered to.

The topic and queue are fixed here, before the decision, so that a commit only makes visible what is stored.
Nothing is written. A half has no delay: it could be due before it is decided.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from txsaga.engine.topics import Topics
from txsaga.errors import InvalidMessage
from txsaga.model import immunity
from txsaga.model.layout import lay_out
from txsaga.model.message import Message, validate
from txsaga.model.records import Group, Half, Row
from txsaga.model.topic import Way

logger = logging.getLogger("txsaga")


def as_message(topic: object, body: bytes, options: Mapping[str, object]) -> Message:
    """Make a message of what was passed to a send."""
    if isinstance(topic, Message):
        return topic
    if not isinstance(topic, str):
        raise InvalidMessage(
            f"one message is sent at a time, not a {type(topic).__name__}; "
            "several messages under one decision go into producer.transaction()"
        )
    return Message(topic, body, **options)  # type: ignore[arg-type]  # validate() looks at every field


def checked_half(message: Message) -> Message:
    """Validate a message that is sent in a transaction; its delay is dropped with a warning."""
    validate(message)
    if not message.scheduled:
        return message
    logger.warning("message to %s: a half message has no delay, it was dropped", message.topic)
    return message.unscheduled()


def half_of(topics: Topics, group: Group, message: Message, seconds: object) -> Half:
    """Lay out a checked message as a half with its immunity."""
    own = immunity.chosen(seconds, message.headers)
    qid = topics.queue_for(message, Way.HALF)
    return Half(group.id, [Row(qid, 0, 1, lay_out([message]))], None, own)
