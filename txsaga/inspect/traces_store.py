"""
What is durable about one transaction, read from one snapshot; offsets that ticks assigned are looked up after it.

The log has no index by transaction, which would slow every tick: an entry is searched from the time at which the
half message was stored, and from the tail only if it is not found there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, text

from txsaga.checkback.doubts_store import remark_of
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import RegisteredResource
from txsaga.core.topic import TopicType
from txsaga.flows import branches_store, steps_store
from txsaga.flows.branches_store import branch_of
from txsaga.flows.flows_store import steps_of, units_of
from txsaga.flows.steps_store import step_of
from txsaga.inspect.overview import Audited
from txsaga.inspect.trace import (
    Amended,
    AssignedOffsets,
    ConsumedOffsets,
    DoubtEntry,
    KeyedRecord,
    LateBodySlot,
    RecordedDecision,
    SentMessages,
    Trace,
    TracePlace,
)
from txsaga.store import sql_files
from txsaga.store.connection import transaction

ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
SLACK = timedelta(seconds=10)
"""The moment of a log entry is the start of its tick, which may be before the half message that it saw."""

# Everything but the bodies of half messages, which may be gigabytes.
SQL = sql_files.read("inspect/sql/trace.sql")
LOOK = {**SQL, "branches": branches_store.SQL["of"], "steps": steps_store.SQL["of"]}


class Rows(NamedTuple):
    """What the queries found."""

    life: Sequence[Any]
    halves: Sequence[Any]
    effects: Sequence[Any]
    bound: Sequence[Any]
    amended: Sequence[Any]
    due: Sequence[Any]
    doubt: Sequence[Any]
    audits: Sequence[Any]
    branches: Sequence[Any]
    steps: Sequence[Any]
    op: Sequence[Any]


OffsetAt = Callable[[int, datetime], int]


def trace(engine: Engine, namespace: str, txid: int, offset_at: OffsetAt) -> Trace | None:
    """Return what is durable about a transaction."""
    s = f'"{namespace}"'
    with transaction(engine) as connection:
        connection.execute(text(ONE_SNAPSHOT))
        found = Rows(*(connection.execute(text(LOOK[name].format(s=s)), {"txid": txid}).all() for name in Rows._fields))
        if not found.life and not found.halves:
            return None
        resource = _resource(connection, s, found)
        steps, units = tuple(steps_of(connection, txid)), tuple(units_of(connection, txid))
    committed = bool(found.op) and found.op[0].decision == Decision.COMMIT
    given = tuple(_given(engine, s, txid, found.halves, offset_at)) if committed else ()
    return replace(_trace(txid, found, resource, given), flow_steps=steps, flow_units=units)


def _trace(txid: int, found: Rows, resource: RegisteredResource | None, given: tuple[AssignedOffsets, ...]) -> Trace:
    others = {row.kind: row.other for row in found.effects}
    return Trace(
        txid=txid,
        group=(found.life or found.halves)[0].pgroup,
        life=next((_life(row) for row in found.life), None),
        resource=resource,
        sent=tuple(_sent(row) for row in found.halves),
        kept=tuple(LateBodySlot(row.seq, TracePlace(row.name, row.idx)) for row in found.effects if row.kind == "late"),
        bound=tuple(ConsumedOffsets(r.grp, r.member, TracePlace(r.name, r.idx), r.first, r.last) for r in found.bound),
        due=next((row.at for row in found.due if not found.op), None),
        listed=next((_listed(row) for row in found.doubt if not found.op), None),
        audits=tuple(Audited(at=row.at, what=row.what, who=row.who, why=row.why) for row in found.audits),
        op=next((RecordedDecision(Decision(row.decision), row.from_check, row.before) for row in found.op), None),
        given=given,
        branches=tuple(map(branch_of, found.branches)),
        steps=tuple(map(step_of, found.steps)),
        replays=others.get("replay"),
        replayed_as=others.get("replayed"),
        amends=others.get("amends"),
        amended_as=next((Amended(row.txid, row.at) for row in found.amended), None),
    )


def _resource(connection: Connection, s: str, found: Rows) -> RegisteredResource | None:
    ids = [row.evidence for row in (*found.life, *found.halves) if row.evidence is not None]
    if not ids:
        return None
    row = connection.execute(text(SQL["resource"].format(s=s)), {"id": ids[0]}).one()
    return RegisteredResource(id=row.id, name=row.name, database=row.database)


def _life(row: Any) -> KeyedRecord:
    return KeyedRecord(
        row.key, row.epoch, row.owner, TxState(row.state), row.opened, row.touched, row.lease is not None
    )


def _sent(row: Any) -> SentMessages:
    timed = row.type == TopicType.DELAY
    return SentMessages(row.part, row.attempt, TracePlace(row.name, row.idx), row.messages, row.born, row.counts, timed)


def _listed(row: Any) -> DoubtEntry:
    return DoubtEntry(row.checks, row.check_at, row.parked, tuple(map(remark_of, row.remarks)))


def _given(engine: Engine, s: str, txid: int, halves: Sequence[Any], offset_at: OffsetAt) -> Iterator[AssignedOffsets]:
    for row in halves:
        if not row.counts:
            continue
        likely = offset_at(row.qid, row.born - SLACK)
        asked = {"qid": row.qid, "txid": txid, "part": row.part, "attempt": row.attempt, "chunks": row.chunks}
        with transaction(engine) as connection:
            for low, high in ((likely, 2**62), (0, likely)):
                look = text(SQL["given"].format(s=s))
                entries = connection.execute(look, {**asked, "low": low, "high": high}).all()
                if entries:
                    last = entries[-1].base + entries[-1].n - 1
                    yield AssignedOffsets(TracePlace(row.name, row.idx), entries[0].base, last, entries[0].at)
                    break
