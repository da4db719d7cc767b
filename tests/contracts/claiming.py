"""What the contract suites of the work style do as a member of a group: short words over the ports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from tests.contracts.samples import PATIENCE, drain, new_group, new_queues, published, row, topic_of
from txsaga.consume.claim import Burial, Claim, ClaimHold
from txsaga.consume.dead_letter import Copy
from txsaga.core.layout import Batch
from txsaga.core.message import Delivered
from txsaga.store.store import Store

GROUP = "billing"
HOUR, MOMENT = 3600.0, 0.1
"""Seconds that a claim is held: longer than any test, and soon over."""
LAPSE = 0.15
"""Seconds behind which a claim for a moment is over."""
CROWD = 8

Answer = TypeVar("Answer")


def filled(store: Store, *texts: str, name: str = "orders") -> int:
    """Create a topic of one queue with these messages in it, to be worked off; return the queue."""
    (qid,) = new_queues(store, name)
    published(store, new_group(store), row(qid, *texts))
    drain(store)
    store.queues.create_cursors(GROUP, {qid: 0})
    return qid


def take(
    store: Store, *qids: int, after: int = 0, limit: int = 60, member: str = "anna", seconds: float = HOUR
) -> Claim | None:
    """Take what nobody has taken yet."""
    return store.claims.take_new(GROUP, qids, after, limit, ClaimHold(member, seconds))


def taken(
    store: Store, *qids: int, after: int = 0, limit: int = 60, member: str = "anna", seconds: float = HOUR
) -> Claim:
    """Take what nobody has taken yet; there must be something."""
    claim = take(store, *qids, after=after, limit=limit, member=member, seconds=seconds)
    assert claim is not None
    return claim


def due(store: Store, *qids: int, limit: int = 60, member: str = "berta", seconds: float = HOUR) -> Sequence[Claim]:
    """Take what comes again."""
    return store.claims.take_due(GROUP, qids, limit, ClaimHold(member, seconds))


def one_due(store: Store, qid: int, *, member: str = "berta", seconds: float = HOUR) -> Claim:
    """Take what comes again; it must be one message."""
    (claim,) = due(store, qid, member=member, seconds=seconds)
    assert claim.open.bit_count() == 1
    return claim


def offsets(*claims: Claim) -> list[int]:
    """Return the offsets of open messages."""
    return [offset for claim in claims for offset in claim.offsets()]


def acked(store: Store, *claims: Claim) -> list[bool]:
    """Acknowledge, and tell for each claim whether it was not lost."""
    return [answer is None for answer in store.claims.ack(claims)]


def read_one(store: Store, qid: int, offset: int) -> Delivered:
    """Read one message of a queue."""
    (entry, *_) = store.log.fetch(qid, offset, 1)
    topic = store.registry.topic(topic_of(store, qid))
    queue = topic.qids.index(qid)
    batch = Batch(entry, topic=topic.name, queue=queue, qid=qid, store=store.registry.identity, start=offset)
    return next(iter(batch.messages()))


def burial_of(store: Store, claim: Claim, cause: str = "broken", *, backout: int | None = None) -> Burial:
    """Copy the one message of a claim, as it is buried."""
    (offset,) = claim.offsets()
    message = read_one(store, claim.qid, offset)
    return Burial(Copy.of(message), message.topic, cause, backout)


def buried(store: Store, claim: Claim, cause: str = "broken", *, backout: int | None = None) -> Burial:
    """Bury the one message of a claim."""
    burial = burial_of(store, claim, cause, backout=backout)
    store.claims.bury(claim, burial)
    return burial


def crowded(*works: Callable[[], Answer]) -> list[Answer]:
    """Run works at the same time, and return their answers."""
    gate = Barrier(len(works))

    def run(work: Callable[[], Answer]) -> Answer:
        gate.wait(PATIENCE)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


def until_none(work: Callable[[], Iterable[Answer]], times: int = 5) -> list[Answer]:
    """Work until there was nothing several times: what others had in their hands is not there."""
    found, idle = list[Answer](), 0
    while idle < times:
        more = list(work())
        found += more
        idle = 0 if more else idle + 1
    return found
