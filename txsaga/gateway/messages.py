"""
Messages of the protocol as messages of txsaga, and back.

A message keeps the id that its client gave it: a send that the client repeats has the same id, by which a reader can
recognise it. Compressed bodies are stored as they were before, so that every reader can use them.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from txsaga import errors
from txsaga.checkback.profile import LONGEST
from txsaga.consume.delivery import Delivery
from txsaga.core.message import MAX_BODY, MAX_DELAY, TRANSACTION_ID, Delivered, Message
from txsaga.core.topic import TopicType, check_name
from txsaga.gateway import wire
from txsaga.gateway.handles import receipt_handle
from txsaga.gateway.status import CallRefused, Code

TYPES: Mapping[int, TopicType] = {
    wire.number("MessageType", type.name): type
    for type in (TopicType.NORMAL, TopicType.FIFO, TopicType.DELAY, TopicType.TRANSACTION)
}
NUMBERS: Mapping[TopicType, int] = {type: number for number, type in TYPES.items()}
DIGESTS: Mapping[int, Callable[[bytes], str]] = {
    wire.number("DigestType", "CRC32"): lambda body: f"{zlib.crc32(body):08X}",
    wire.number("DigestType", "MD5"): lambda body: hashlib.md5(body, usedforsecurity=False).hexdigest().upper(),
    wire.number("DigestType", "SHA1"): lambda body: hashlib.sha1(body, usedforsecurity=False).hexdigest().upper(),
}
MD5 = wire.number("DigestType", "MD5")
GZIP = wire.number("Encoding", "GZIP")
IDENTITY = wire.number("Encoding", "IDENTITY")
LONGEST_GROUP = 64
PROPERTIES, LONGEST_PROPERTIES = 128, 16 * 1024
"""Properties of a message, and the bytes that they have with its tag and its keys; as RocketMQ allows."""
CONTROL, MILLISECONDS = re.compile(r"[\x00-\x1f\x7f-\x9f]"), re.compile(r"[0-9]{1,14}")
DELIVER_AT = "TIMER_DELIVER_MS"
"""The property that keeps when a message was to be delivered, in milliseconds; its name is RocketMQ's."""
JOINS = "txsaga-transaction"
"""The property by which a message joins the transaction of a token."""
ITS_OWN = frozenset(
    f"""{DELIVER_AT} 1ST_POP_TIME ARRIVE_TIME BORN_TIMESTAMP BUYER_ID CLUSTER CONSUME_START_TIME CORRECTION_FLAG
    CORRELATION_ID DELAY DUP_INFO EXTEND_UNIQ_INFO INNER_MULTI_QUEUE_OFFSET INSTANCE_ID KEYS MAX_OFFSET
    MAX_RECONSUME_TIMES MIN_OFFSET MQ2_FLAG MSG_REGION MSG_TYPE ORIGIN_MESSAGE_ID PGROUP POP_CK POP_CK_OFFSET
    PUSH_REPLY_TIME REAL_QID REAL_TOPIC RECONSUME_TIME REPLY_TO_CLIENT RETRY_TOPIC TAGS TIMER_DELAY_LEVEL
    TIMER_DELAY_SEC TIMER_DEL_UNIQKEY TIMER_DEQUEUE_MS TIMER_ENQUEUE_MS TIMER_OUT_MS TIMER_ROLL_TIMES TRACE_ON
    TRAN_MSG TRAN_PREPARED_QUEUE_OFFSET TRANSFER_FLAG TTL UNIQ_KEY WAIT __BORNHOST""".split()
)
"""Properties that RocketMQ sets itself."""
ILLEGAL = {"topic": Code.ILLEGAL_TOPIC, "group": Code.ILLEGAL_CONSUMER_GROUP}


def name_of(resource: Any, what: str = "topic") -> str:
    """Return the name of a topic or group."""
    if resource.resource_namespace:
        why = f"{what} {resource.name!r} has a namespace; leave it out, and start a gateway for each namespace"
        raise CallRefused(ILLEGAL[what], why)
    try:
        check_name(resource.name, what=what)
    except errors.TxSagaError as refused:
        raise CallRefused(ILLEGAL[what], str(refused)) from None
    return str(resource.name)


def read(sent: Any) -> tuple[Message, TopicType]:
    """Return a message that a client sends, and its type; `CallRefused` for what RocketMQ refuses as well."""
    given = sent.system_properties
    headers = {name: value for name, value in sent.user_properties.items() if name != JOINS}
    if given.message_type and given.message_type not in TYPES:
        raise CallRefused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"messages of type {given.message_type} are not supported"
        )
    type = TYPES.get(given.message_type, TopicType.NORMAL)
    if type is TopicType.TRANSACTION and given.delivery_attempt > 1 and given.HasField("delivery_timestamp"):
        type = TopicType.DELAY  # a consumer sends it again: it is no half any more
    _check_names(given)
    _check_properties(given, headers)
    deliver_at = _deliver_at(given)
    if deliver_at is not None and type is TopicType.DELAY:
        headers[DELIVER_AT] = f"{given.delivery_timestamp.ToMilliseconds()}"
    message = Message(
        name_of(sent.topic),
        _body(sent),
        key=" ".join(given.keys) or None,
        tag=given.tag or None,
        headers=headers or None,
        ordering_key=given.message_group or None,
        deliver_at=deliver_at,
        unique_key=given.message_id or uuid4().hex,
    )
    return message, type


def token_of(sent: Any) -> str | None:
    """Return the token of the transaction that a message joins; readers do not get it."""
    return dict(sent.user_properties).get(JOINS)


def immunity_of(sent: Any) -> int | None:
    """Return the seconds before the first check that a client asks for."""
    if not sent.system_properties.HasField("orphaned_transaction_recovery_duration"):
        return None
    asked = wire.span(sent.system_properties.orphaned_transaction_recovery_duration)
    if asked.total_seconds() > min(LONGEST.total_seconds(), 3_600):
        raise CallRefused(Code.BAD_REQUEST, f"the recovery duration is {asked}; give at most one hour")
    return max(int(asked.total_seconds()), 0) or None


def _check_names(given: Any) -> None:
    tag, group = given.tag, given.message_group
    if given.HasField("tag") and (not tag.strip() or "|" in tag or CONTROL.search(tag)):
        raise CallRefused(Code.ILLEGAL_MESSAGE_TAG, f"tag {tag[:99]!r} is blank, or has a | or a control character")
    for key in given.keys:
        if not key.strip() or CONTROL.search(key):
            raise CallRefused(Code.ILLEGAL_MESSAGE_KEY, f"key {key[:99]!r} is blank, or has a control character")
    if given.HasField("message_group") and (not 0 < len(group.strip()) <= LONGEST_GROUP or CONTROL.search(group)):
        why = f"message group {group[:99]!r} does not have 1 to {LONGEST_GROUP} characters, or has a control character"
        raise CallRefused(Code.ILLEGAL_MESSAGE_GROUP, why)


def _check_properties(given: Any, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if name in ITS_OWN or CONTROL.search(name) or CONTROL.search(value):
            why = f"property {name[:99]!r} has a name that RocketMQ uses itself, or a control character"
            raise CallRefused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, why)
    words = [*properties, *properties.values(), given.tag, *given.keys]
    if len(properties) > PROPERTIES or sum(len(each.encode()) for each in words) > LONGEST_PROPERTIES:
        why = f"give at most {PROPERTIES} properties, of {LONGEST_PROPERTIES} bytes with the tag and the keys"
        raise CallRefused(Code.MESSAGE_PROPERTIES_TOO_LARGE, why)


def _body(sent: Any) -> bytes:
    given, body = sent.system_properties, bytes(sent.body)
    if not body:
        raise CallRefused(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    digest = DIGESTS.get(given.body_digest.type)
    if digest is not None and digest(body).lstrip("0") != given.body_digest.checksum.upper().lstrip("0"):
        raise CallRefused(Code.MESSAGE_CORRUPTED, "the body does not have the checksum that came with it")
    if given.body_encoding == GZIP:
        unpacked = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib
        try:
            body = unpacked.decompress(body, MAX_BODY + 1)
        except zlib.error as damage:
            raise CallRefused(Code.MESSAGE_CORRUPTED, f"the body can't be unpacked: {damage}") from None
    if len(body) > MAX_BODY:
        raise CallRefused(Code.MESSAGE_BODY_TOO_LARGE, f"the body has more than {MAX_BODY} bytes")
    return body


def _deliver_at(given: Any) -> datetime | None:
    if not given.HasField("delivery_timestamp"):
        return None
    try:
        at = wire.moment(given.delivery_timestamp)
    except ValueError:
        raise CallRefused(Code.ILLEGAL_DELIVERY_TIME, "the delivery time is no point in time") from None
    if at - datetime.now(UTC) > MAX_DELAY:
        raise CallRefused(Code.ILLEGAL_DELIVERY_TIME, f"it is delivered at most {MAX_DELAY.days} days from now")
    return at


def delivered(delivery: Delivery, invisible: float) -> Any:
    """Return a message for the client that received it."""
    claimed = {
        "receipt_handle": receipt_handle(delivery.claim),
        "invisible_duration": wire.in_parts(invisible),
        "delivery_attempt": delivery.attempts,
    }
    return pulled(delivery.delivered, **claimed)


def pulled(message: Delivered, **claimed: object) -> Any:
    """Return a committed message for a client."""
    where = {"queue_id": message.queue, "queue_offset": message.offset}
    extra = {**claimed, **where, "born_timestamp": wire.in_parts(message.born.timestamp())}
    headers = {**message.headers, TRANSACTION_ID: message.half.transaction}
    type = TopicType.FIFO if message.ordering_key else TopicType.NORMAL
    if MILLISECONDS.fullmatch(headers.get(DELIVER_AT, "")):
        type, extra["delivery_timestamp"] = TopicType.DELAY, wire.in_parts(int(headers.pop(DELIVER_AT)) / 1000)
    return _written(message, message.unique_key or message.id, type, headers, extra)


def undecided(message: Message, id: str) -> Any:
    """Return a half message for the client that is asked about it."""
    return _written(message, message.unique_key or id, TopicType.TRANSACTION, dict(message.headers or {}), {})


def _written(
    message: Delivered | Message, id: str, type: TopicType, headers: Mapping[str, str], extra: Mapping[str, Any]
) -> Any:
    given: dict[str, Any] = {**extra, "message_id": id, "message_type": NUMBERS[type], "body_encoding": IDENTITY}
    given["body_digest"] = {
        "type": MD5,
        "checksum": DIGESTS[MD5](message.body),
    }  # clients disagree on how to write CRC32
    given["keys"] = message.key.split(" ") if message.key else []
    given |= {"tag": message.tag} if message.tag is not None else {}
    given |= {"message_group": message.ordering_key} if message.ordering_key is not None else {}
    topic = {"name": message.topic}
    return wire.new("Message", topic=topic, user_properties=headers, system_properties=given, body=message.body)
