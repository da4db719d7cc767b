"""
Figures and records for people, read from one namespace.

Undecided half messages are counted from the checkpoint of the sweep on; those before it are on the list of doubts.
So a query of a store with a long history is cheap, as long as some engine runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, exists, func, select, text

from txsaga.checkback.doubts_store import remark_of
from txsaga.checkback.questions import Remark
from txsaga.consume.log_store import Log
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.lifecycle import TxState
from txsaga.core.records import RegisteredResource
from txsaga.core.topic import TopicType
from txsaga.flows import ballots_store as ballots
from txsaga.flows import branch_statements, step_statements
from txsaga.flows.ballot import Polled
from txsaga.flows.branch_statements import BACKLOG
from txsaga.flows.branches_store import branch_of
from txsaga.flows.flows_store import steps_of, units_of
from txsaga.flows.steps_store import step_of
from txsaga.inspect.overview import (
    Audited,
    Backlog,
    BranchBacklog,
    Checks,
    Dispatch,
    DoubtView,
    LastRound,
    Position,
    Reading,
    Undecided,
)
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
from txsaga.store import schema
from txsaga.store.connection import transaction

ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
SLACK = timedelta(seconds=10)
"""The moment of a log entry is the start of its tick, which may be before the half message that it saw."""

# Everything but the bodies of half messages, which may be gigabytes.
LOOK = {
    "life": "SELECT key, epoch, owner, state, opened, touched, pgroup, evidence, lease FROM {s}.tx WHERE txid = :txid",
    "halves": """
SELECT h.part, h.attempt, t.name, q.idx, h.qid, t.type, sum(h.n)::int8 AS messages, count(*) AS chunks,
       min(h.born) AS born, NOT h.keyed OR coalesce(p.attempt = h.attempt, false) AS counts,
       min(h.pgroup) AS pgroup, min(h.evidence) AS evidence
  FROM {s}.half h JOIN {s}.queue q USING (qid) JOIN {s}.topic t ON t.id = q.topic
  LEFT JOIN {s}.part p ON p.txid = h.txid AND p.part = h.part
 WHERE h.txid = :txid GROUP BY h.part, h.attempt, t.name, q.idx, h.qid, t.type, h.keyed, p.attempt
 ORDER BY h.part, h.attempt, min(h.born), t.name, q.idx""",
    "effects": """
SELECT e.seq, e.kind, t.name, q.idx, coalesce(e.payload ->> 'of', e.payload ->> 'as')::int8 AS other
  FROM {s}.effect e LEFT JOIN {s}.queue q ON q.qid = (e.payload ->> 'qid')::int4
  LEFT JOIN {s}.topic t ON t.id = q.topic WHERE e.txid = :txid ORDER BY e.seq""",
    "bound": """
SELECT i.grp, i.member, t.name, q.idx, i.start AS first, i."end" - 1 AS last
  FROM {s}.intent i JOIN {s}.queue q USING (qid) JOIN {s}.topic t ON t.id = q.topic WHERE i.txid = :txid
UNION ALL
SELECT c.grp, coalesce(c.member, ''), t.name, q.idx, c.base, c.base + c.size - 1
  FROM {s}.claim c JOIN {s}.queue q USING (qid) JOIN {s}.topic t ON t.id = q.topic WHERE c.txid = :txid
 ORDER BY 1, 3, 4, 5""",
    "amended": """
SELECT n.txid, n.touched AS at
  FROM {s}.tx t JOIN {s}.tx n ON n.pgroup = t.pgroup AND n.key = t.key AND n.epoch > t.epoch AND n.state = 'committed'
  JOIN {s}.effect e ON e.txid = n.txid AND e.kind = 'amends' AND (e.payload ->> 'of')::int8 = t.txid
 WHERE t.txid = :txid ORDER BY n.epoch LIMIT 1""",
    "due": "SELECT at FROM {s}.scheduled WHERE txid = :txid",
    # Remarks were added later than the table: a doubt from before has none.
    "doubt": """
SELECT checks, check_at, parked, remarks
  FROM {s}.doubt d WHERE txid = :txid""",
    "audits": "SELECT at, what, who, why FROM {s}.event WHERE txid = :txid ORDER BY id",
    "branches": branch_statements.OF,
    "steps": step_statements.OF,
    "op": """
SELECT decision, from_check, (SELECT k.at FROM {s}.tick k WHERE pg_visible_in_snapshot(o.xid, k.snap)
                               ORDER BY k.id LIMIT 1) AS before
  FROM {s}.op o WHERE txid = :txid""",
}
RESOURCE = "SELECT id, name, database FROM {s}.resource WHERE id = :id"
GIVEN = """
SELECT base, n, at FROM {s}.log
 WHERE qid = :qid AND base >= :low AND base < :high AND txid = :txid AND part = :part AND attempt = :attempt
 ORDER BY base LIMIT :chunks"""


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
    """Return what is durable about a transaction, from one snapshot.

    Offsets that ticks assigned are looked up after it. The log has no index by transaction, which would slow every
    tick: an entry is searched from the time at which the half message was stored, and from the tail only if needed.
    """
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
    row = connection.execute(text(RESOURCE.format(s=s)), {"id": ids[0]}).one()
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
                look = text(GIVEN.format(s=s))
                entries = connection.execute(look, {**asked, "low": low, "high": high}).all()
                if entries:
                    last = entries[-1].base + entries[-1].n - 1
                    yield AssignedOffsets(TracePlace(row.name, row.idx), entries[0].base, last, entries[0].at)
                    break


# From the sweep's checkpoint on; what is before it is on the list of doubts.
UNDECIDED_ONES = """
    SELECT u.txid, coalesce(t.pgroup, h.pgroup) AS pgroup, d.parked,
           clock_timestamp() - coalesce(t.opened, h.born) AS age
      FROM (
        SELECT txid FROM {s}.tx WHERE state IN ('active', 'ended', 'prepared')
        UNION SELECT txid FROM {s}.doubt
        UNION SELECT h.txid FROM {s}.half h
         WHERE h.txid > coalesce((SELECT txid FROM {s}.checkpoint WHERE name = 'sweep'), 0) AND NOT h.keyed) u
      LEFT JOIN {s}.tx t USING (txid) LEFT JOIN {s}.doubt d USING (txid)
      LEFT JOIN LATERAL (SELECT born, pgroup FROM {s}.half WHERE half.txid = u.txid LIMIT 1) h ON true
     WHERE NOT EXISTS (SELECT FROM {s}.op WHERE op.txid = u.txid)
       AND NOT EXISTS (SELECT FROM {s}.scheduled w WHERE w.txid = u.txid)"""

UNDECIDED = f"""
SELECT count(*), count(parked), max(age),
       (SELECT count(*) FROM {{s}}.scheduled w WHERE NOT EXISTS (SELECT FROM {{s}}.op WHERE op.txid = w.txid))
  FROM ({UNDECIDED_ONES}) b"""

READINGS = """
SELECT c.grp, t.name, q.idx, q.tail, q.head, c.off, least(k.lowest, c.off),
       coalesce(k.held, 0)::int8, coalesce(k.resting, 0)::int8, coalesce(k.in_line, 0)::int8,
       CASE WHEN least(k.lowest, c.off) < q.head THEN (
         SELECT clock_timestamp() - at FROM {s}.log l WHERE l.qid = c.qid
            AND l.base <= greatest(least(k.lowest, c.off), q.tail) ORDER BY l.base DESC LIMIT 1) END
  FROM {s}.cursor c JOIN {s}.queue q USING (qid) JOIN {s}.topic t ON t.id = q.topic
  LEFT JOIN (
    SELECT grp, qid, min(base) FILTER (WHERE message IS NULL) AS lowest,
           sum(bit_count(open::bit(64))) FILTER (WHERE receipt IS NOT NULL AND until > clock_timestamp()) AS held,
           sum(bit_count(open::bit(64))) FILTER (WHERE receipt IS NULL AND attempts = 0 AND message IS NULL) AS in_line,
           sum(bit_count(open::bit(64))) FILTER (WHERE receipt IS NULL AND (attempts > 0 OR message IS NOT NULL)
                                                    OR until <= clock_timestamp() AND receipt IS NOT NULL) AS resting
      FROM {s}.claim GROUP BY grp, qid) k ON k.grp = c.grp AND k.qid = c.qid
 ORDER BY c.grp, t.name, q.idx"""

POSITION = ("queue", "tail", "head", "offset", "lowest", "held", "resting", "in_line", "oldest")

# A member that reads a stream has a lease; one of a work queue has claims. A claim bound to a transaction does not
# count: its member may be dead.
MEMBERS = """
SELECT kind, count(*) FROM {s}.lease WHERE kind LIKE 'member:%' AND until > clock_timestamp() GROUP BY kind"""
HANDS = """
SELECT c.grp, t.name, count(DISTINCT c.member) FROM {s}.claim c JOIN {s}.queue q USING (qid)
  JOIN {s}.topic t ON t.id = q.topic WHERE c.receipt IS NOT NULL AND c.txid IS NULL
   AND c.until > clock_timestamp()
 GROUP BY c.grp, t.name"""

DEAD = "SELECT grp, count(*) FROM {s}.dead_letter GROUP BY grp ORDER BY grp"

DISPATCH = """
SELECT t.id, clock_timestamp() - t.at,
       (SELECT count(*) FROM {s}.op WHERE xid >= pg_snapshot_xmax(t.snap) AND decision = 1)
     + (SELECT count(*) FROM {s}.op WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip(t.snap))) AND decision = 1),
       ARRAY(SELECT o.name || '/' || q.idx FROM {s}.queue q JOIN {s}.topic o ON o.id = q.topic
              WHERE q.reached IS NOT NULL ORDER BY o.name, q.idx)
  FROM (SELECT id, snap, at FROM {s}.tick ORDER BY id DESC LIMIT 1) t"""


BACKLOGS = f"""
WITH b AS ({UNDECIDED_ONES})
SELECT g.id, g.name, count(b.txid), count(b.parked), count(q.txid), max(b.age),
       (SELECT count(*) FROM {{s}}.lease l WHERE l.kind = 'checker:' || g.id AND l.until > clock_timestamp())
  FROM {{s}}.producer_group g LEFT JOIN b ON b.pgroup = g.id LEFT JOIN {{s}}.question q ON q.txid = b.txid
 WHERE g.transactional GROUP BY g.id, g.name ORDER BY g.name"""
ANSWERS = "SELECT pgroup, answer, n FROM {s}.tally ORDER BY pgroup, answer"

DOUBTS = """
SELECT d.txid, g.name, t.key, clock_timestamp() - coalesce(t.opened, h.born), q.member,
       d.checks, d.check_at, d.parked, d.remarks
  FROM {s}.doubt d JOIN {s}.producer_group g ON g.id = d.pgroup
  LEFT JOIN {s}.tx t USING (txid) LEFT JOIN {s}.question q USING (txid)
  LEFT JOIN LATERAL (SELECT born FROM {s}.half WHERE half.txid = d.txid LIMIT 1) h ON true
 WHERE NOT EXISTS (SELECT FROM {s}.op WHERE op.txid = d.txid) AND (d.parked IS NOT NULL OR NOT :parked)
   AND (cast(:group AS text) IS NULL OR g.name = :group) AND (cast(:txid AS int8) IS NULL OR d.txid = :txid)
 ORDER BY d.txid LIMIT :limit"""


class Overview:
    """Figures and records for people; reading changes nothing, and nothing is decided by them."""

    def __init__(self, engine: Engine, namespace: str, identity: StoreId, log: Log) -> None:
        self._engine, self._namespace, self._identity, self._log = engine, namespace, identity, log
        self._schema = f'"{namespace}"'

    def undecided(self) -> Undecided:
        """Count the transactions without a decision, parked ones included."""
        ((count, parked, oldest, scheduled),) = self._rows(UNDECIDED)
        return Undecided(count=count, parked=parked, oldest=oldest, scheduled=scheduled)

    def readings(self) -> Sequence[Reading]:
        """Return how far each consumer group has read each of its topics, by name."""
        leases = {tuple(kind.removeprefix("member:").split("/")): count for kind, count in self._rows(MEMBERS)}
        members = Counter({**leases, **{(group, topic): count for group, topic, count in self._rows(HANDS)}})
        return [
            Reading(
                group=group,
                topic=topic,
                members=members[group, topic],
                positions=tuple(Position(**dict(zip(POSITION, row[2:], strict=True))) for row in rows),
            )
            for (group, topic), rows in groupby(self._rows(READINGS), lambda row: (row[0], row[1]))
        ]

    def dead_letters(self) -> Mapping[str, int]:
        """Count the dead letters of each group that has some."""
        return dict(map(tuple, self._rows(DEAD)))

    def dispatch(self) -> Dispatch:
        """Return the last tick and what waits for the next one."""
        ((tick, age, waiting, blocked),) = self._rows(DISPATCH)
        return Dispatch(tick=tick, age=age, waiting=waiting, blocked=tuple(blocked))

    def history(self, txid: int) -> Sequence[Audited]:
        """Return the audit rows of a transaction, oldest first."""
        row = schema.audit.c
        query = select(row.at, row.what, row.who, row.why, row.login).where(row.txid == txid).order_by(row.id)
        with transaction(self._engine) as connection:
            return [Audited(**found) for found in connection.execute(query).mappings()]

    def checks(self, txid: int) -> Checks | None:
        """Return the state of a transaction on the list of doubts; None if it is not on it."""
        doubt, op = schema.doubt.c, schema.op.c
        query = select(doubt.checks, doubt.check_at, doubt.parked, doubt.remarks).where(
            doubt.txid == txid, ~exists().where(op.txid == txid)
        )
        with transaction(self._engine) as connection:
            found = connection.execute(query).one_or_none()
        if found is None:
            return None
        return _checks(*found)

    def remarks(self, txid: int) -> Sequence[Remark]:
        """Return the results of the latest checks of a transaction, oldest first."""
        checks = self.checks(txid)
        return () if checks is None else checks.remarks

    def backlogs(self) -> Sequence[Backlog]:
        """Return what is undecided in each transactional producer group, by name."""
        answers: dict[int, dict[str, int]] = {}
        for group, answer, count in self._rows(ANSWERS):
            answers.setdefault(group, {})[answer] = count
        return [
            Backlog(
                group=name,
                undecided=undecided,
                parked=parked,
                asked=asked,
                oldest=oldest,
                members=members,
                answers=answers.get(id, {}),
            )
            for id, name, undecided, parked, asked, oldest, members in self._rows(BACKLOGS)
        ]

    def trace(self, txid: int) -> Trace | None:
        """Return everything durable about a transaction; None for an unknown one."""
        return trace(self._engine, self._namespace, txid, self._log.offset_at)

    def doubts(
        self, *, limit: int, parked: bool = False, group: str | None = None, txid: int | None = None
    ) -> Sequence[DoubtView]:
        """Return undecided entries of the list of doubts, by number: parked ones only, of one group, or one."""
        return [
            DoubtView(
                txid=number,
                id=self._identity.transaction(number),
                group=name,
                key=key,
                age=age,
                member=member,
                checks=_checks(*checks),
            )
            for number, name, key, age, member, *checks in self._rows(
                DOUBTS, limit=limit, parked=parked, group=group, txid=txid
            )
        ]

    def polls(self, limit: int = 50) -> Sequence[tuple[int, Polled]]:
        """Return the ballots of open transactions with their votes, by transaction and name."""
        with transaction(self._engine) as connection:
            return ballots.open_ones(connection, limit)

    def branches(self) -> Sequence[BranchBacklog]:
        """Return what is unfinished in each resource that takes part in two-phase commit, by name."""
        return [
            BranchBacklog(resource=name, undecided=undecided, waiting=waiting, oldest=oldest, heuristics=heuristics)
            for name, undecided, waiting, oldest, heuristics in self._rows(BACKLOG)
        ]

    def decisions(self, txids: Collection[int]) -> Mapping[int, Decision]:
        """Return the decisions of transactions, without the undecided ones."""
        found = self._rows("SELECT txid, decision FROM {s}.op WHERE txid = ANY(:txids)", txids=list(txids))
        return {txid: Decision(decision) for txid, decision in found}

    def last_round(self, role: str) -> LastRound | None:
        """Return who led the last round of a role, and when it ended; None before the first."""
        lease = schema.lease.c
        query = select(lease.holder, func.clock_timestamp() - lease.until).where(
            lease.kind == "round", lease.name == role
        )
        with transaction(self._engine) as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else LastRound(leader=found[0], ago=max(found[1], timedelta(0)))

    def _rows(self, sql: str, **values: object) -> Sequence[Any]:
        with transaction(self._engine) as connection:
            return connection.execute(text(sql.format(s=self._schema)), values).all()


def _checks(asked: int, due: datetime, parked: str | None, remarks: Sequence[Mapping[str, str]]) -> Checks:
    return Checks(asked=asked, due=due, parked=parked, remarks=tuple(map(remark_of, remarks)))
