"""What a store in memory knows of one transaction. The caller holds the lock."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tests.oracle.doubts import MemoryDoubts
from tests.oracle.flows import steps_of, units_of
from tests.oracle.home import Home
from tests.oracle.log import MemoryLog
from tests.oracle.names import Names
from tests.oracle.rows import Kept, Opened, StoredHalf
from txsaga.core.lifecycle import TxState
from txsaga.core.topic import TopicType
from txsaga.flows.branch import Branch
from txsaga.inspect import trace as model
from txsaga.inspect.overview import Audited, Checks
from txsaga.inspect.trace import (
    Amended,
    AssignedOffsets,
    ConsumedOffsets,
    KeyedRecord,
    RecordedDecision,
    SentMessages,
    Trace,
    TracePlace,
)


def trace(home: Home, names: Names, doubts: MemoryDoubts, log: MemoryLog, txid: int) -> Trace | None:
    """Return what is known of a transaction."""
    kept, opened = home.kept, home.kept.lives.get(txid)
    halves = kept.halves.get(txid, ())
    if opened is None and not halves:
        return None
    first = halves[0] if opened is None else opened.life
    op, listed = kept.ops.get(txid), doubts.listed(txid)
    waits = None if op or listed is None else listed
    return Trace(
        txid=txid,
        group=first.group,
        life=opened and _life(opened),
        resource=None if not first.evidence else names.resource_by_id(first.evidence),
        sent=tuple(_sent(kept, names, halves)),
        kept=tuple(
            model.LateBodySlot(slot.slot, TracePlace(*names.place(slot.qid))) for slot in kept.slots.get(txid, ())
        ),
        bound=tuple(sorted(_bound(kept, names, txid))),
        due=None if op else kept.scheduled.get(txid),
        # Remarks are told as soon as the list keeps some.
        listed=waits
        and Checks(
            asked=waits.checks, due=waits.due, parked=waits.parked, remarks=tuple(getattr(waits, "remarks", ()))
        ),
        audits=tuple(Audited(at=a.at, what=a.event, who=a.who, why=a.why) for a in kept.audits if a.txid == txid),
        op=op and RecordedDecision(op.decision, op.from_check, log.seen(txid)),
        given=tuple(_given(names, log, txid)),
        branches=tuple(_branches(kept, names, txid)),
        steps=tuple(steps_of(kept, txid)),
        units=tuple(units_of(kept, txid)),
        replays=next((old for old, new in kept.replays.items() if new == txid), None),
        replayed_as=kept.replays.get(txid),
        amends=kept.amendments[txid].of if txid in kept.amendments else None,
        amended_as=next(_amended(kept, txid), None),
    )


def _amended(kept: Kept, txid: int) -> Iterator[Amended]:
    for new, amendment in sorted(kept.amendments.items()):
        opened = kept.lives[new]
        if amendment.of == txid and opened.life.state is TxState.COMMITTED:
            yield Amended(new, opened.touched)


def _life(opened: Opened) -> KeyedRecord:
    life = opened.life
    return KeyedRecord(
        life.key, life.epoch, life.owner, life.state, opened.born, opened.touched, life.lease is not None
    )


def _sent(kept: Kept, names: Names, halves: tuple[StoredHalf, ...]) -> Iterator[SentMessages]:
    def of(half: StoredHalf) -> tuple[int, int, tuple[str, int]]:
        return half.part, half.attempt, names.place(half.row.qid)

    for (part, attempt, (topic, queue)), same in groupby(sorted(halves, key=of), of):
        together = list(same)
        yield SentMessages(
            part,
            attempt,
            TracePlace(topic, queue),
            sum(half.row.count for half in together),
            min(half.born for half in together),
            kept.counts(together[0]),
            names.topic(topic).type is TopicType.DELAY,
        )


def _bound(kept: Kept, names: Names, txid: int) -> Iterator[ConsumedOffsets]:
    for intent in kept.intents.values():
        if intent.txid == txid:
            place = TracePlace(*names.place(intent.qid))
            yield ConsumedOffsets(intent.group, intent.member, place, intent.start, intent.end - 1)
    for row in kept.claims.values():
        if row.txid == txid:
            place = TracePlace(*names.place(row.qid))
            yield ConsumedOffsets(row.group, row.member or "", place, row.base, row.base + row.size - 1)


def _branches(kept: Kept, names: Names, txid: int) -> Iterator[Branch]:
    for place, row in sorted(kept.branches.items()):
        if place[0] == txid:
            yield Branch(*place, names.resource_by_id(row.resource).name, *row[1:4], row.resource, row.aux)


def _given(names: Names, log: MemoryLog, txid: int) -> Iterator[AssignedOffsets]:
    chunks = sorted(log.given(txid), key=lambda each: (each.half.part, each.half.row.qid, each.base))
    for _, same in groupby(chunks, key=lambda each: (each.half.part, each.half.row.qid)):
        together = list(same)
        first, last = together[0], together[-1]
        place = TracePlace(*names.place(first.half.row.qid))
        yield AssignedOffsets(place, first.base, last.base + last.half.row.count - 1, first.at)
