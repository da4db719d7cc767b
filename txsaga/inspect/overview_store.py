"""
Figures and records for people, read from one namespace.

Undecided half messages are counted from the checkpoint of the sweep on; those before it are on the list of doubts.
So a query of a store with a long history is cheap, as long as some engine runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import Engine, exists, func, select, text

from txsaga.checkback.doubts_store import remark_of
from txsaga.checkback.questions import Remark
from txsaga.consume.log_store import Log
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.flows import ballots_store as ballots
from txsaga.flows import branches_store
from txsaga.flows.ballot import Polled
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
from txsaga.inspect.trace import Trace
from txsaga.inspect.traces_store import trace
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction

SQL = sql_files.read("inspect/sql/overview.sql")


POSITION = ("queue", "tail", "head", "offset", "lowest", "held", "resting", "in_line", "oldest")


class Overview:
    """Figures and records for people; reading changes nothing, and nothing is decided by them."""

    def __init__(self, engine: Engine, namespace: str, identity: StoreId, log: Log) -> None:
        self._engine, self._namespace, self._identity, self._log = engine, namespace, identity, log
        self._schema = f'"{namespace}"'

    def undecided(self) -> Undecided:
        """Count the transactions without a decision, parked ones included."""
        ((count, parked, oldest, scheduled),) = self._rows(SQL["undecided"])
        return Undecided(count=count, parked=parked, oldest=oldest, scheduled=scheduled)

    def readings(self) -> Sequence[Reading]:
        """Return how far each consumer group has read each of its topics, by name."""
        leases = {tuple(kind.removeprefix("member:").split("/")): count for kind, count in self._rows(SQL["members"])}
        members = Counter({**leases, **{(group, topic): count for group, topic, count in self._rows(SQL["hands"])}})
        return [
            Reading(
                group=group,
                topic=topic,
                members=members[group, topic],
                positions=tuple(Position(**dict(zip(POSITION, row[2:], strict=True))) for row in rows),
            )
            for (group, topic), rows in groupby(self._rows(SQL["readings"]), lambda row: (row[0], row[1]))
        ]

    def dead_letters(self) -> Mapping[str, int]:
        """Count the dead letters of each group that has some."""
        return dict(map(tuple, self._rows(SQL["dead"])))

    def dispatch(self) -> Dispatch:
        """Return the last tick and what waits for the next one."""
        ((tick, age, waiting, blocked),) = self._rows(SQL["dispatch"])
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
        for group, answer, count in self._rows(SQL["answers"]):
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
            for id, name, undecided, parked, asked, oldest, members in self._rows(SQL["backlogs"])
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
                SQL["doubts"], limit=limit, parked=parked, group=group, txid=txid
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
            for name, undecided, waiting, oldest, heuristics in self._rows(branches_store.SQL["backlog"])
        ]

    def decisions(self, txids: Collection[int]) -> Mapping[int, Decision]:
        """Return the decisions of transactions, without the undecided ones."""
        found = self._rows(SQL["decisions"], txids=list(txids))
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
