"""
Workspaces: a branch of one name in many tables, written by any engine and published by one decision.

Each table has the branch from the same moment on, which is recorded: main has changed if it is not at that snapshot.
Engines that use the prefix of a workspace see its branches as main.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from pyiceberg.manifest import DataFile, DataFileContent

from txsaga.broker import Broker
from txsaga.catalog.joining import JoinedTransaction
from txsaga.catalog.moments import WORKSPACE, KeptMoment, Moments, change_of, is_at, without
from txsaga.catalog.requests import Json
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.table_gates import gate_of, same_gate
from txsaga.core.failure import on_failure
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import AlreadyCommitted, ConfigError, TableMoved
from txsaga.flows.ballot import Result
from txsaga.flows.flow import Flow
from txsaga.iceberg.as_of import snapshot_of
from txsaga.lake import differences
from txsaga.lake.metadata import Metadata
from txsaga.lake.table import TableName, TableWrite
from txsaga.messages.transaction import Transaction

GROUP = "workspaces"
STEP = "publish"
PATIENCE = timedelta(days=30)
"""How long a workspace waits for an approval; then it is not published."""


class WorkspaceState(StrEnum):
    """What became of a workspace."""

    OPEN = "open"
    WAITING = "waits for approval"
    PUBLISHED = "published"
    UNDONE = "undone"


class WorkspaceTable(NamedTuple):
    """A table in a workspace, and what was changed there."""

    table: TableName
    base: int | None
    head: int | None
    added: int | None
    """Rows in files that were added; None if the snapshot of the beginning was expired."""
    removed: int | None
    """Rows in files that were removed, or named by delete files; rows deleted by their values are not counted."""
    moved: bool
    """Whether main has changed since."""

    @property
    def changed(self) -> bool:
        """Whether anything was written to it."""
        return self.head != self.base


class Workspaces:
    """The workspaces of a store."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._lake = broker, broker.kernel.tables.lake
        self._producer, self._moments = broker.producer(GROUP), Moments(broker, WORKSPACE)

    def create(self, name: str, patterns: Sequence[str], who: str) -> Sequence[TableName]:
        """Begin a branch in each table that matches, all at the same moment."""
        if not patterns:
            raise ConfigError("name the tables of the workspace, such as sales.*")
        with self._moments.taken(name, patterns, who=who) as moment:
            then = {table: each.snapshot for table, each in moment.tables.items()}
            if empty := [str(table) for table in then if then[table] is None]:
                raise ConfigError(f"{', '.join(empty)}: a table without rows has no branch; append some first")
            now = self._moments.now(moment).items()
            self._change([change_of(table, each, _to(moment.ref, then[table])) for table, each in now], who)
        return sorted(moment.tables)

    def all(self) -> Sequence[tuple[KeptMoment, WorkspaceState]]:
        """Return the workspaces, and what became of each."""
        return [(each, self._state(each)) for each in self._moments.all()]

    def diff(self, name: str) -> Sequence[WorkspaceTable]:
        """Return what was changed in a workspace, by table."""
        moment = self._moments.find(name)
        return [self._compared(moment, *each) for each in self._now(moment).items()]

    def publish(self, name: str, who: str) -> Sequence[WorkspaceTable]:
        """Make all that was written in a workspace visible by one decision; if voters were asked, once they agree."""
        moment = self._moments.find(name)
        if (asked := self._asked(moment)) is not None:
            return self._publish_approved(moment, *asked)
        now = self._open(moment)
        tables = self._unmoved(moment, now)
        try:
            with self._producer.transaction(key=_key(moment, "publish")) as transaction:
                transaction.change([_published(moment, each, now[each.table]) for each in tables], who)
                self._judge(tables, now, transaction)
        except AlreadyCommitted:
            raise ConfigError(f"workspace {name!r} was published by somebody else meanwhile") from None
        self._mark_published(name, tables)
        return tables

    def _publish_approved(self, moment: KeptMoment, txid: int, missing: Sequence[str]) -> Sequence[WorkspaceTable]:
        """Publish what voters were asked about, as it was then; ask nobody again if one of them said no."""
        with self._broker.kernel.store.ledgers.open() as ledger:
            found, polls = ledger.flows.look(txid), ledger.ballots(txid)
        assert found is not None
        flow = Flow(self._broker.kernel, found)
        if not any(each.ballot.name == f"publish {moment.name}" for each in polls):
            flow.roll_back("it has no ballot")  # its process was killed before
            raise ConfigError(f"workspace {moment.name!r} was about to be published by somebody else; publish it again")
        if refused := [
            cast.voter for poll in polls for cast in poll.casts if poll.result is Result.REFUSED and not cast.yes
        ]:
            flow.roll_back("it was not approved")
            raise ConfigError(f"{', '.join(refused)} voted against workspace {moment.name!r}: change it, and ask again")
        if missing:
            raise _waits(moment, txid)
        tables = [self._compared(moment, *each) for each in self._now(moment).items()]
        with suppress(AlreadyCommitted):  # by somebody else at the same moment
            flow.end()
        self._mark_published(moment.name, tables)
        return tables

    def _mark_published(self, name: str, tables: Sequence[WorkspaceTable]) -> None:
        heads = {str(each.table): each.head for each in tables if each.changed and each.head is not None}
        self._moments.mark(name, WorkspaceState.PUBLISHED, heads)

    def ask(self, name: str, voters: Sequence[str], who: str) -> tuple[int, Sequence[WorkspaceTable]]:
        """Ask voters whether a workspace may be published as it is now; return the transaction that waits for them.

        Who asks votes yes, with what would change as the reason.
        """
        moment, asker = self._moments.find(name), who.rpartition("@")[0] or who
        now = self._open(moment)
        if asker in voters:
            raise ConfigError(f"{asker!r} asks, so somebody else has to approve it; name another voter")
        tables, kernel, ballot = self._unmoved(moment, now), self._broker.kernel, f"publish {name}"
        flow = self._producer.begin_flow(key=_key(moment, "publish"), lease=PATIENCE)
        flow.ballot(ballot, asker, *voters)  # first: without it, nothing was asked
        with on_failure(flow.roll_back):
            with flow.step(STEP):
                store = CatalogStore(kernel.store.engine, kernel.store.namespace)
                writes = [_published(moment, each, now[each.table]) for each in tables]
                JoinedTransaction(kernel, store, flow.token()).stage(lambda _: writes, ())
                self._judge(tables, now, flow)
            flow.vote(ballot, asker, yes=True, evidence={"reason": _told(tables), "by": who})
        return flow.txid, tables

    def asked(self, name: str) -> tuple[int, Sequence[str]] | None:
        """Return the transaction that asks whether a workspace is published, and whose yes is missing."""
        return self._asked(self._moments.find(name))

    def _asked(self, moment: KeptMoment) -> tuple[int, Sequence[str]] | None:
        life = self._latest(moment, "publish")
        if life is None or life.state is not TxState.ACTIVE or life.lease is None:
            return None
        with self._broker.kernel.store.ledgers.open() as ledger:
            return life.txid, [voter for poll in ledger.ballots(life.txid) for voter in poll.missing]

    def undo(self, name: str, who: str) -> Sequence[TableName]:
        """Point the tables of a published workspace back at what they were, unless they changed since."""
        moment = self._moments.find(name)
        if (state := self._state(moment)) is not WorkspaceState.PUBLISHED:
            raise ConfigError(f"workspace {name!r} is not published: it is {state}")
        undone, now = list[TableWrite](), self._moments.now(moment)
        heads = self._heads(moment) if moment.published is None else moment.published
        for table, head in ((each, heads[str(each)]) for each in moment.tables if str(each) in heads):
            if table not in now:
                raise TableMoved(f"table {table} was dropped or renamed since workspace {name!r} was published")
            base = moment.tables[table].snapshot
            back = without("main") if base is None else _to("main", base, now[table])
            undone.append(change_of(table, now[table], back, required=[is_at("main", head)]))
        with suppress(AlreadyCommitted), self._producer.transaction(key=_key(moment, "undo")) as transaction:
            transaction.change(undone, who)
        self._moments.mark(name, WorkspaceState.UNDONE)
        return [each.name for each in undone]

    def drop(self, name: str, who: str) -> int:
        """Remove a workspace with its branches; return of how many tables."""
        moment = self._moments.find(name)
        self._require_not_asked(moment)
        left = {table: each for table, each in self._moments.now(moment).items() if moment.ref in each.raw["refs"]}
        self._change([change_of(table, each, without(moment.ref)) for table, each in left.items()], who)
        self._moments.forget(name)
        return len(moment.tables)

    def _change(self, writes: Sequence[TableWrite], who: str) -> None:
        if writes:
            with self._producer.transaction() as transaction:
                transaction.change(writes, who)

    def _latest(self, moment: KeptMoment, what: str) -> TxRecord | None:
        with self._broker.kernel.store.ledgers.open() as ledger:
            return ledger.latest(self._producer.group.id, _key(moment, what))

    def _state(self, moment: KeptMoment) -> WorkspaceState:
        """Return what became of a workspace; its process may have been killed before it said so."""
        if moment.state is not None:
            return WorkspaceState(moment.state)
        if self._asked(moment) is not None:
            return WorkspaceState.WAITING
        for state, what in ((WorkspaceState.UNDONE, "undo"), (WorkspaceState.PUBLISHED, "publish")):
            life = self._latest(moment, what)
            if life is not None and life.state is TxState.COMMITTED:
                return state
        return WorkspaceState.OPEN

    def _open(self, moment: KeptMoment) -> Mapping[TableName, Metadata]:
        """Return the tables of a workspace that can be published."""
        self._require_not_asked(moment)
        if (state := self._state(moment)) is not WorkspaceState.OPEN:
            raise ConfigError(f"workspace {moment.name!r} is {state}; drop it, and create a new one")
        return self._now(moment)

    def _require_not_asked(self, moment: KeptMoment) -> None:
        if (asked := self._asked(moment)) is not None:
            raise _waits(moment, asked[0])

    def _now(self, moment: KeptMoment) -> Mapping[TableName, Metadata]:
        """Return the metadata of all tables of a workspace."""
        now, begun = self._moments.now(moment), f"since workspace {moment.name!r} was begun"
        if gone := [str(table) for table in moment.tables if table not in now]:
            raise TableMoved(f"{', '.join(gone)} was dropped or renamed {begun}; drop the workspace")
        lost = [str(table) for table, each in now.items() if _has_lost(each, moment.ref, moment.tables[table].snapshot)]
        if lost and self._state(moment) is WorkspaceState.OPEN:
            raise TableMoved(f"branch {moment.ref} of {', '.join(lost)} was removed {begun}; drop the workspace")
        return now

    def _unmoved(self, moment: KeptMoment, now: Mapping[TableName, Metadata]) -> Sequence[WorkspaceTable]:
        tables = [self._compared(moment, *each) for each in now.items()]
        if moved := [str(each.table) for each in tables if each.moved and each.changed]:
            raise TableMoved(
                f"{', '.join(moved)} changed since workspace {moment.name!r} was begun; write it again in a new one"
            )
        return tables

    def _judge(
        self, tables: Sequence[WorkspaceTable], now: Mapping[TableName, Metadata], transaction: Transaction | Flow
    ) -> None:
        """Let the gates of the changed tables judge what main would become."""
        for each in tables:
            metadata = now[each.table]
            if each.changed and each.head is not None and (gate := gate_of(metadata.properties)) is not None:
                subject = self._lake.whole(each.table, metadata, metadata.snapshot(each.head))
                transaction.check(str(each.table), subject, gate)

    def _heads(self, moment: KeptMoment) -> Mapping[str, int]:
        """Return what main was pointed at when a workspace was published."""
        life = self._latest(moment, "publish")
        assert life is not None
        with self._broker.kernel.store.ledgers.open() as ledger:
            writes = [TableWrite.read(each.payload) for each in ledger.effects(life.txid)]
        updates = ((str(write.name), each) for write in writes for each in (write.change or {}).get("updates", ()))
        return {name: each["snapshot-id"] for name, each in updates if each.get("ref-name") == "main"}

    def _compared(self, moment: KeptMoment, table: TableName, now: Metadata) -> WorkspaceTable:
        base, head = moment.tables[table].snapshot, snapshot_of(now.raw, moment.ref)
        before, after = (None if each is None else now.snapshot(each) for each in (base, head))
        moved = now.current_id != base
        if base is not None and before is None:
            return WorkspaceTable(table, base, head, None, None, moved)
        found = differences.between(self._lake.storage, before, after)
        removed = _rows(found.gone) + _rows(found.deletes) - _rows(found.deletes_gone)
        return WorkspaceTable(table, base, head, _rows(found.added), removed, moved)


def _waits(moment: KeptMoment, txid: int) -> ConfigError:
    return ConfigError(
        f"transaction {txid} asks whether workspace {moment.name!r} is published; vote on it (`txsaga tx ballots "
        f"{txid}`), or take it back: `txsaga tx rollback {txid}`"
    )


def _key(moment: KeptMoment, what: str) -> str:
    return f"{what} {moment.name} of tick {moment.tick}"


def _to(ref: str, snapshot: int | None, now: Metadata | None = None) -> Json:
    """Return the update that points a branch at a snapshot; it keeps its settings."""
    settings = {} if now is None else (now.raw.get("refs") or {}).get(ref, {})
    return {"type": "branch", **settings, "action": "set-snapshot-ref", "ref-name": ref, "snapshot-id": snapshot}


def _published(moment: KeptMoment, table: WorkspaceTable, now: Metadata) -> TableWrite:
    """Return the change that points main at a branch and removes it, if both are where they were seen."""
    updates, required = [], [is_at(moment.ref, table.head), same_gate(now.properties)]
    if table.changed:
        updates, required = [_to("main", table.head, now)], [*required, is_at("main", table.base)]
    if table.head is not None:
        updates.append(without(moment.ref))
    return change_of(table.table, now, *updates, required=required, rows=table.added or 0)


def _has_lost(now: Metadata, ref: str, base: int | None) -> bool:
    return base is not None and snapshot_of(now.raw, ref) is None


def _told(tables: Sequence[WorkspaceTable]) -> str:
    said = [f"rows of {each.table}: {each.added} added, {each.removed} removed" for each in tables if each.changed]
    return "; ".join(said) or "no table was changed"


def _rows(files: Mapping[str, DataFile]) -> int:
    return sum(each.record_count for each in files.values() if each.content != DataFileContent.EQUALITY_DELETES)
