"""
Figures and records for people, read from one namespace.

Undecided half messages are counted from the checkpoint of the sweep on; those before it are on the list of doubts.
So a query of a store with a long history is cheap, as long as some engine runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Engine

from txsaga.checkback.doubts_store import remark_of
from txsaga.checkback.questions import Remark
from txsaga.consume.log_store import Log
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.lifecycle import TxState
from txsaga.core.records import EVERY, RegisteredResource, TxFilter, TxView
from txsaga.core.topic import TopicType
from txsaga.flows import ballots_store as ballots
from txsaga.flows import flows_store
from txsaga.flows.ballot import Polled
from txsaga.flows.flows_store import COLUMNS, step_of, unit_of
from txsaga.flows.work_statements import BRANCHES
from txsaga.flows.work_store import branch_of
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
    KeyedRecord,
    LateBodySlot,
    RecordedDecision,
    SentMessages,
    Trace,
    TracePlace,
    WrittenTable,
)
from txsaga.store import sql_files
from txsaga.store.connection import NamespaceStore

SQL = sql_files.read("inspect/sql/overview.sql")
LIST = sql_files.read("inspect/sql/transactions.sql")
DECIDED = {"committed": Decision.COMMIT, "rolled_back": Decision.ROLLBACK}

# Everything but the bodies of half messages, which may be gigabytes.
TRACE = sql_files.read("inspect/sql/trace.sql")
LOOKS = {**TRACE, "branches": BRANCHES["of"], "steps": flows_store.SQL["steps"], "units": flows_store.SQL["units"]}
ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
SLACK, NEAR = timedelta(seconds=10), 10_000
"""The moment of a log entry is the start of its tick, which may be before the half message that it saw. It is
most often among the next messages."""


class Overview(NamespaceStore):
    """Figures and records for people; reading changes nothing, and nothing is decided by them."""

    def __init__(self, engine: Engine, namespace: str, identity: StoreId, log: Log) -> None:
        super().__init__(engine, namespace)
        self._identity, self._log = identity, log

    def transaction(self, txid: int) -> TxView | None:
        """Return one transaction."""
        return next(iter(self.transactions(txid=txid, limit=1)), None)

    def transactions(
        self, *, limit: int, undecided: bool = False, txid: int | None = None, only: TxFilter = EVERY
    ) -> Sequence[TxView]:
        """List transactions, newest first: plain and keyed ones in one list."""
        states = only.states or frozenset()
        decided = frozenset() if undecided else states & DECIDED.keys()
        if decided and decided != states:  # of the decided ones the newest are enough, the undecided ones are few
            parts = [only._replace(states=part) for part in (decided, states - decided)]
            found = [each for part in parts for each in self.transactions(limit=limit, only=part)]
            return sorted(found, key=lambda each: -each.txid)[:limit]
        values = only._asdict() | {"states": sorted(states) or None, "txid": txid, "limit": limit}
        values["newest"] = limit if only == TxFilter(table=only.table, before=only.before) else None
        values["first"] = None if states and not decided else limit  # such a state is read from several tables
        wanted = ["decided"] if len(decided) == len(DECIDED) else [*decided]
        wanted += ["undecided"] * (undecided or bool(states and not decided))
        wanted += [name for name in ("txid", "group", "before") if values[name] is not None]
        lives = [name for name in ("key", "run", "table", "problem") if values[name] is not None]
        topic = only.topic is not None
        if lives:  # such a transaction has a life, and a half message alone has not
            halves, lives = ["none"], [*lives, *(["topic_of_tx"] * topic)]
        else:  # what sends to a topic has a half message
            halves, lives = ["topic_of_half"] * topic, ["none"] * topic
        sql = LIST["list"]
        for place, table, own in (("{halves}", "half", halves), ("{lives}", "tx", lives)):
            sql = sql.replace(place, " AND ".join(["true", *(_condition(name, table) for name in (*wanted, *own))]))
        return [_view(self._identity, row) for row in self._rows(sql, **values)]

    def undecided(self) -> Undecided:
        """Count the transactions without a decision, parked ones included."""
        return Undecided(*self._rows(SQL["undecided"])[0])

    def readings(self) -> Sequence[Reading]:
        """Return how far each consumer group has read each of its topics, by name."""
        leases = {tuple(kind.removeprefix("member:").split("/")): count for kind, count in self._rows(SQL["members"])}
        members = Counter({**leases, **{(group, topic): count for group, topic, count in self._rows(SQL["hands"])}})
        return [
            Reading(
                group=group,
                topic=topic,
                members=members[group, topic],
                positions=tuple(Position(*row[2:]) for row in rows),
            )
            for (group, topic), rows in groupby(self._rows(SQL["readings"]), lambda row: (row[0], row[1]))
        ]

    def dead_letters(self) -> Mapping[str, int]:
        """Count the dead letters of each group that has some."""
        return dict(map(tuple, self._rows(SQL["dead"])))

    def dispatch(self) -> Dispatch:
        """Return the last tick and what waits for the next one."""
        ((tick, age, waiting, blocked),) = self._rows(SQL["dispatch"])
        return Dispatch(tick, age, waiting, tuple(blocked))

    def history(self, txid: int) -> Sequence[Audited]:
        """Return the audit rows of a transaction, oldest first."""
        return [Audited(**row._mapping) for row in self._rows(SQL["history"], txid=txid)]

    def checks(self, txid: int) -> Checks | None:
        """Return the state of a transaction on the list of doubts; None if it is not on it."""
        return next((_checks(*row) for row in self._rows(SQL["checks"], txid=txid)), None)

    def remarks(self, txid: int) -> Sequence[Remark]:
        """Return the results of the latest checks of a transaction, oldest first."""
        checks = self.checks(txid)
        return () if checks is None else checks.remarks

    def backlogs(self) -> Sequence[Backlog]:
        """Return what is undecided in each producer group, by name; of plain ones, in those that have something."""
        answers: dict[int, dict[str, int]] = {}
        for group, answer, count in self._rows(SQL["answers"]):
            answers.setdefault(group, {})[answer] = count
        return [
            Backlog(name, undecided, parked, asked, oldest, unproven, members, answers.get(id, {}))
            for id, name, undecided, parked, asked, oldest, unproven, members in self._rows(SQL["backlogs"])
        ]

    def trace(self, txid: int) -> Trace | None:
        """Return everything durable about a transaction, from one snapshot; None for an unknown one.

        Offsets that ticks gave are looked up after it. The log has no index by transaction, which would slow every
        tick: an entry is searched from the time at which the half message was stored, and from the tail only if it is
        not found there.
        """
        with self._open() as run:
            run(ONE_SNAPSHOT)

            def look(sql: str, **values: object) -> Sequence[Any]:
                return run(sql.format(s=self._schema, txid=txid, columns=COLUMNS), **values).all()

            found = {name: look(sql, txid=txid) for name, sql in LOOKS.items()}
            records = [*found["life"], *found["halves"]]
            if not records:
                return None
            ids = [row.evidence for row in records if row.evidence is not None]
            named = look(SQL["resource"], id=ids[0]) if ids else []
        resource = next((RegisteredResource(id=row.id, name=row.name, database=row.database) for row in named), None)
        committed = any(row.decision == Decision.COMMIT for row in found["op"])
        given = tuple(self._given(txid, found["halves"])) if committed else ()
        return _trace(txid, found, resource, given)

    def _given(self, txid: int, halves: Sequence[Any]) -> Iterator[AssignedOffsets]:
        for row in halves:
            if not row.counts:
                continue
            likely = self._log.offset_at(row.qid, row.born - SLACK)
            asked = {"qid": row.qid, "txid": txid, "part": row.part, "attempt": row.attempt, "chunks": row.chunks}
            for low, high in ((likely, likely + NEAR), (likely, 2**62), (0, likely)):
                entries = self._rows(SQL["given"], **asked, low=low, high=high)
                if len(entries) == row.chunks or (entries and high != likely + NEAR):
                    last = entries[-1].base + entries[-1].n - 1
                    yield AssignedOffsets(TracePlace(row.name, row.idx), entries[0].base, last, entries[0].at)
                    break

    def doubts(self, *, limit: int, parked: bool = False, group: str | None = None) -> Sequence[DoubtView]:
        """Return undecided entries of the list of doubts, by number: all, parked ones only, or those of one group."""
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
                SQL["doubts"], limit=limit, parked=parked, group=group
            )
        ]

    def polls(self, limit: int = 50) -> Sequence[tuple[int, Polled]]:
        """Return the ballots of open transactions with their votes, by transaction and name."""
        return list(ballots.polled(self._rows(ballots.SQL["open"], limit=limit)))

    def branches(self) -> Sequence[BranchBacklog]:
        """Return what is unfinished in each resource that takes part in two-phase commit, by name."""
        return [BranchBacklog(*row) for row in self._rows(BRANCHES["backlog"])]

    def decisions(self, txids: Collection[int]) -> Mapping[int, Decision]:
        """Return the decisions of transactions, without the undecided ones."""
        return {txid: Decision(made) for txid, made in self._rows(SQL["decisions"], txids=list(txids))}

    def last_round(self, role: str) -> LastRound | None:
        """Return who led the last round of a role, and when it ended; None before the first."""
        found = self._rows(SQL["last_round"], role=role)
        return next((LastRound(leader=leader, ago=max(ago, timedelta(0))) for leader, ago in found), None)


def _view(identity: StoreId, row: Any) -> TxView:
    decision = None if row.decision is None else Decision(row.decision)
    made = {"id": identity.transaction(row.txid), "decision": decision, "topics": tuple(row.topics)}
    return TxView(**{**row._mapping, **made})


def _checks(asked: int, due: datetime, parked: str | None, remarks: Sequence[Mapping[str, str]]) -> Checks:
    return Checks(asked=asked, due=due, parked=parked, remarks=tuple(map(remark_of, remarks)))


def _condition(name: str, table: str) -> str:
    return LIST["committed_life" if (name, table) == ("committed", "tx") else name].replace("{t}", table)


def _trace(
    txid: int,
    found: Mapping[str, Sequence[Any]],
    resource: RegisteredResource | None,
    given: tuple[AssignedOffsets, ...],
) -> Trace:
    others = {row.kind: row.other for row in found["effects"]}
    return Trace(
        txid=txid,
        group=(found["life"] or found["halves"])[0].pgroup,
        life=next((_life(row) for row in found["life"]), None),
        resource=resource,
        sent=tuple(_sent(row) for row in found["halves"]),
        kept=tuple(LateBodySlot(r.seq, TracePlace(r.name, r.idx)) for r in found["effects"] if r.kind == "late"),
        written=tuple(WrittenTable(*row) for row in found["written"]),
        bound=tuple(
            ConsumedOffsets(r.grp, r.member, TracePlace(r.name, r.idx), r.first, r.last) for r in found["bound"]
        ),
        due=next((row.at for row in found["due"] if not found["op"]), None),
        listed=next(
            (_checks(r.checks, r.check_at, r.parked, r.remarks) for r in found["doubt"] if not found["op"]), None
        ),
        audits=tuple(Audited(**row._mapping) for row in found["audits"]),
        op=next((RecordedDecision(Decision(decision), *rest) for decision, *rest in found["op"]), None),
        given=given,
        branches=tuple(map(branch_of, found["branches"])),
        steps=tuple(map(step_of, found["steps"])),
        units=tuple(map(unit_of, found["units"])),
        replays=others.get("replay"),
        replayed_as=others.get("replayed"),
        amends=others.get("amends"),
        amended_as=next((Amended(*row) for row in found["amended"]), None),
    )


def _life(row: Any) -> KeyedRecord:
    return KeyedRecord(
        row.key, row.epoch, row.owner, TxState(row.state), row.opened, row.touched, row.lease is not None
    )


def _sent(row: Any) -> SentMessages:
    timed = row.type == TopicType.DELAY
    return SentMessages(row.part, row.attempt, TracePlace(row.name, row.idx), row.messages, row.born, row.counts, timed)
