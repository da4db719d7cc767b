"""
Where a message goes after its last failed attempt: the group's backout topic, else the dead letters, else nowhere.

It leaves its group and reaches its new place in one commit. Without this, the message would be redelivered for ever.
"""

from __future__ import annotations

import logging

from txsaga.consume.claim import Burial, Claim, Policy
from txsaga.consume.dead_letter import Copy
from txsaga.consume.fetching import Damage
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.message import Delivered, Message
from txsaga.core.topic import SendKind
from txsaga.errors import InvalidMessage, TopicTypeMismatch, UnknownTopic

logger = logging.getLogger("txsaga")

BACKOUT = ("backout-group", "backout-topic", "backout-message", "backout-attempts", "backout-cause")
"""Headers of a message in a backout topic."""


def bury(kernel: Kernel, policy: Policy, claim: Claim, message: Delivered, cause: str, *, uncounted: int = 0) -> None:
    """Remove a message from its group for good, to where its policy sends it."""
    told = {"group": claim.group, "message_id": message.id}
    with kernel.announce.around(facts.Burying, about=claim.group):
        if policy.backout is None and not policy.dead_letters:
            kernel.store.claims.drop(claim)
            logger.error("message %s of group %s is lost: %s", message.id, claim.group, cause, extra=told)
            return
        try:
            qid = _moved(kernel, policy, claim, message, cause, uncounted)
        except UnknownTopic:  # the backout topic was deleted, or replaced by another one: look again
            qid = _moved(kernel, policy, claim, message, cause, uncounted)
    logger.error("message %s of group %s is dead-lettered: %s", message.id, claim.group, cause, extra=told)
    if qid is not None:
        kernel.tell_decided()


def _moved(kernel: Kernel, policy: Policy, claim: Claim, message: Delivered, cause: str, uncounted: int) -> int | None:
    qid, copy = _destination(kernel, policy, claim, message, cause, claim.attempts - uncounted)
    kernel.store.claims.bury(claim, Burial(copy, message.topic, cause, qid, uncounted))
    return qid


def bury_damaged(kernel: Kernel, claim: Claim, damage: Damage) -> None:
    """Move an unreadable message to the dead letters, under any policy: no member failed on it."""
    with kernel.announce.around(facts.Burying, about=claim.group):
        kernel.store.claims.bury(claim, Burial(damage.copy, damage.topic, damage.cause, None))
    told = {"group": claim.group, "message_id": damage.copy.message}
    logger.error("message %s of %s is dead-lettered: %s", damage.copy.message, claim.group, damage.cause, extra=told)


def _destination(
    kernel: Kernel, policy: Policy, claim: Claim, message: Delivered, cause: str, attempts: int
) -> tuple[int | None, Copy]:
    """Return the backout queue, if there is one, and the copy to be stored."""
    dead = None, Copy.of(message)
    if policy.backout is None:
        return dead
    of = {"group": claim.group, "message_id": message.id}
    if policy.backout == message.topic:
        logger.error(
            "the backout topic of group %s is the topic it reads; the message is dead-lettered", claim.group, extra=of
        )
        return dead
    told = dict(zip(BACKOUT, (claim.group, message.topic, message.id, str(attempts), cause), strict=True))
    copied = Message(policy.backout, message.body, key=message.key, tag=message.tag, ordering_key=message.ordering_key)
    try:
        _, qid = kernel.topics.admit(copied, SendKind.PLAIN)
    except (UnknownTopic, TopicTypeMismatch, InvalidMessage) as reason:
        logger.error("backout topic of group %s: %s; the message is dead-lettered", claim.group, reason, extra=of)
        return dead
    return qid, Copy.of(message, **told)
