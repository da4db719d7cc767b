"""
Workspaces: a branch of one name in many tables, written by any engine and published by one decision.

Each table has the branch from the same moment on, which is recorded: main has changed if it is not at that snapshot.
Engines that use the prefix of a workspace see its branches as main.

All that publishes a workspace has one key: a flow that asks for it, or a transaction. The row of the moment names the
last question: then nothing is published but what that one approves. What was decided is recorded there afterwards, by
this process or the next one that looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from pyiceberg.manifest import DataFile, DataFileContent

from txsaga.broker import Broker
from txsaga.catalog.joining import JoinedTransaction
from txsaga.catalog.moments import WORKSPACE, KeptMoment, Moments, change_of, is_at, without
from txsaga.catalog.requests import Json
from txsaga.catalog.table_gates import gate_of, same_columns, same_gate
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import AlreadyCommitted, ConfigError, DecidedOtherwise, KeyInUse, Superseded, TableMoved
from txsaga.flows.ballot import Polled, Result
from txsaga.flows.flow import Flow
from txsaga.flows.requests import Entered
from txsaga.iceberg.as_of import snapshot_of
from txsaga.lake import differences
from txsaga.lake.metadata import Metadata
from txsaga.lake.table import TableName, TableWrite
from txsaga.messages.decide import DecidedBy
from txsaga.messages.transaction import Transaction

PATIENCE = timedelta(days=30)
"""How long a workspace waits for an approval; then it is not published."""


class WorkspaceState(StrEnum):
    """What became of a workspace."""

    OPEN = "open"
    WAITING = "waits for approval"
    NOT_APPROVED = "not approved"
    PUBLISHED = "published"
    UNDONE = "undone"


UNPUBLISHED = (WorkspaceState.OPEN, WorkspaceState.WAITING, WorkspaceState.NOT_APPROVED)


class WorkspaceTable(NamedTuple):
    """A table in a workspace, and what was changed there."""

    table: TableName
    base: int
    head: int
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
        self._moments = Moments(broker, WORKSPACE)
        self._producer = self._moments.producer

    def create(self, name: str, patterns: Sequence[str], who: str) -> Sequence[TableName]:
        """Begin a branch in each table that matches, all at the same moment."""
        if not patterns:
            raise ConfigError("name the tables of the workspace, such as sales.*")
        with self._moments.taken(name, patterns, who=who) as moment:
            then = {table: each.snapshot for table, each in moment.tables.items()}
            if empty := [str(table) for table in then if then[table] is None]:
                raise ConfigError(f"{', '.join(empty)}: a table without rows has no branch; append some first")
            now = self._moments.now(moment).items()
            self._moments.change([change_of(table, each, _to(moment.ref, then[table])) for table, each in now], who)
        return sorted(moment.tables)

    def all(self) -> Sequence[tuple[KeptMoment, WorkspaceState, tuple[int, Sequence[str]] | None]]:
        """Return each workspace, its state, and the transaction that asks about it, with whose yes is missing."""
        return [(each, *self._state(each)) for each in map(self._settled, self._moments.all())]

    def diff(self, name: str) -> Sequence[WorkspaceTable]:
        """Return what was changed in a workspace, by table."""
        moment = self._moments.find(name)
        return [self._compared(moment, *each) for each in self._now(moment).items()]

    def publish(self, name: str, who: str) -> Sequence[WorkspaceTable]:
        """Make all that was written in a workspace visible by one decision; if voters were asked, once they agree."""
        moment = self._found(name)
        if moment.asked is not None:
            return self._publish_approved(moment)
        self._require(moment, WorkspaceState.OPEN)
        now = self._now(moment)
        tables = self._unmoved(moment, now)
        with self._alone(moment):
            self._end(self._begun(moment), who)
            with self._producer.transaction(key=_key(moment, "publish")) as transaction:
                self._moments.require_seen(moment)  # from now on nobody can ask
                transaction.change([_published(moment, each, now[each.table]) for each in tables], who)
                self._judge(tables, now, transaction)
        self._settled(moment)
        return tables

    def _publish_approved(self, moment: KeptMoment) -> Sequence[WorkspaceTable]:
        """Publish what voters were asked about, as it was then."""
        flow, poll = self._question(moment)
        if flow is None or poll is None or poll.missing:
            raise self._refused(moment)
        tables = [self._compared(moment, *each) for each in self._now(moment).items()]
        with self._alone(moment):
            Flow(self._broker.kernel, flow).end()
        self._settled(moment)
        return tables

    def ask(self, name: str, voters: Sequence[str], who: str) -> tuple[int, Sequence[WorkspaceTable]]:
        """Ask voters whether a workspace may be published as it is now; return the transaction that waits for them.

        Who asks votes yes, with what would change as the reason. From now on nothing else is published, until another
        question is asked or this one is withdrawn.
        """
        moment, asker = self._found(name), who.rpartition("@")[0] or who
        self._require(moment, WorkspaceState.OPEN, WorkspaceState.NOT_APPROVED)
        if asker in voters:
            raise ConfigError(f"{asker!r} asks, so somebody else has to approve it; name another voter")
        now = self._now(moment)
        tables, store = self._unmoved(moment, now), self._moments.store
        writes = [_published(moment, each, now[each.table]) for each in tables]
        with self._alone(moment):
            begun = self._begun(moment)
            if begun is not None and (begun.lease is None or begun.txid == moment.asked):
                self._end(begun, who)
            flow = self._producer.begin_flow(key=_key(moment, "publish"), lease=PATIENCE)  # joined by who asks as well
            asked = moment._replace(asked=flow.txid)
            if not self._moments.mark(moment, asked):
                if all(each.asked != flow.txid for each in self._moments.all()):
                    flow.roll_back()
                raise self._moments.overtaken(moment)
            with on_failure(self._unask, asked, moment, who):
                with flow.step("publish"):
                    JoinedTransaction(self._broker.kernel, store, flow.token()).stage(lambda _: writes, ())
                    self._judge(tables, now, flow)
                flow.ballot(_ballot(moment), asker, *voters)  # last: a question without it was never asked
                flow.vote(_ballot(moment), asker, yes=True, evidence={"reason": _told(tables), "by": who})
        return flow.txid, tables

    def _unask(self, asked: KeptMoment, before: KeptMoment, who: str) -> None:
        """End a question that was not asked."""
        self._end(self._begun(asked), who)
        self._moments.mark(asked, before)

    def withdraw(self, name: str, who: str) -> None:
        """Take a question back: the workspace can be published without an approval again."""
        moment = self._found(name)
        if moment.asked is None:
            raise ConfigError(f"no question is open about workspace {name!r}: it is {self._state(moment)[0]}")
        with self._alone(moment):
            self._end(self._begun(moment), who)
        if not self._moments.mark(moment, moment._replace(asked=None)):
            raise self._moments.overtaken(moment)

    def undo(self, name: str, who: str) -> Sequence[TableName]:
        """Point the tables of a published workspace back at what they were, unless they changed since."""
        moment = self._found(name)
        if (state := self._state(moment)[0]) is not WorkspaceState.PUBLISHED:
            raise ConfigError(f"workspace {name!r} is not published: it is {state}")
        undone, now, heads = list[TableWrite](), self._moments.now(moment), moment.published or {}
        for table, head in ((each, heads[str(each)]) for each in moment.tables if str(each) in heads):
            if table not in now:
                raise TableMoved(f"table {table} was dropped or renamed since workspace {name!r} was published")
            back = _to("main", moment.tables[table].snapshot, now[table])
            undone.append(change_of(table, now[table], back, required=[is_at("main", head)]))
        key = _key(moment, "undo")
        with self._alone(moment), suppress(AlreadyCommitted), self._producer.transaction(key=key) as transaction:
            transaction.change(undone, who)
        self._settled(moment)
        return [each.name for each in undone]

    def drop(self, name: str, who: str) -> int:
        """Remove a workspace with its branches, and end its question; return of how many tables."""
        moment = self._found(name)
        if moment.state is None:
            with self._alone(moment):
                self._end(self._begun(moment), who)
        return self._moments.remove(moment, who)

    def _latest(self, moment: KeptMoment, what: str) -> TxRecord | None:
        with self._broker.kernel.store.ledgers.open() as ledger:
            return ledger.latest(self._producer.group.id, _key(moment, what), lock=False)

    def _end(self, life: TxRecord | None, who: str) -> None:
        """Roll back what asks about a workspace, or began to publish it; its process was perhaps killed."""
        if life is None or life.state is TxState.ROLLED_BACK:
            return
        by = DecidedBy(who=who, why="what it was to publish is ended, or started again", owner=life.owner)
        outcome = self._broker.kernel.decider.decide(life.txid, Decision.ROLLBACK, by)
        if outcome.decision is Decision.COMMIT:
            raise AlreadyCommitted(life.txid, life.key or "")

    @contextmanager
    def _alone(self, moment: KeptMoment) -> Iterator[None]:
        """Say so if somebody else was faster, or took the work over."""
        try:
            yield
        except (DecidedOtherwise, KeyInUse, Superseded):
            raise self._moments.overtaken(moment) from None

    def _begun(self, moment: KeptMoment) -> TxRecord | None:
        """Return the last transaction that was to publish a workspace, if no question has come since."""
        life = self._latest(moment, "publish")
        self._moments.require_seen(moment)  # after it: a question that was recorded before is not ended
        return life

    def _found(self, name: str) -> KeptMoment:
        return self._settled(self._moments.find(name))

    def _settled(self, moment: KeptMoment) -> KeptMoment:
        """Record what became of a workspace: whoever decided it was perhaps killed before."""
        for state, what in ((WorkspaceState.UNDONE, "undo"), (WorkspaceState.PUBLISHED, "publish")):
            if moment.state == state:
                break
            life = self._latest(moment, what)
            if life is not None and life.state is TxState.COMMITTED:
                heads = self._heads(life) if state is WorkspaceState.PUBLISHED else moment.published
                settled = moment._replace(state=state, asked=None, published=heads)
                self._moments.mark(moment, settled)
                return settled
        return moment

    def _state(self, moment: KeptMoment) -> tuple[WorkspaceState, tuple[int, Sequence[str]] | None]:
        """Return what became of a workspace, and the question that is open about it."""
        if moment.state is not None or moment.asked is None:
            return WorkspaceState(moment.state or WorkspaceState.OPEN), None
        flow, poll = self._question(moment)
        if flow is None or (poll is not None and poll.result is Result.REFUSED):
            return WorkspaceState.NOT_APPROVED, None
        return WorkspaceState.WAITING, (moment.asked, () if poll is None else poll.missing)

    def _question(self, moment: KeptMoment) -> tuple[Entered | None, Polled | None]:
        """Return the flow that asks about a workspace, unless it was rolled back, and its ballot once it is open."""
        assert moment.asked is not None
        with self._broker.kernel.store.ledgers.open() as ledger:
            flow, polls = ledger.flows.look(moment.asked), ledger.ballots(moment.asked)
        poll = next((each for each in polls if each.ballot.name == _ballot(moment)), None)
        return (None if flow is None or flow.life.state is TxState.ROLLED_BACK else flow), poll

    def _require(self, moment: KeptMoment, *states: WorkspaceState) -> None:
        if self._state(moment)[0] not in states:
            raise self._refused(moment)

    def _refused(self, moment: KeptMoment) -> ConfigError:
        """Say why a workspace can't be published, and what can be done."""
        name, txid, state = moment.name, moment.asked, self._state(moment)[0]
        if txid is None:
            return ConfigError(f"workspace {name!r} is {state}; drop it, and create a new one")
        withdraw = f"take the question back: `txsaga workspace withdraw {name}`"
        _, poll = self._question(moment)
        if state is WorkspaceState.NOT_APPROVED:
            against = [cast.voter for cast in poll.casts if not cast.yes] if poll is not None else []
            said = f": {', '.join(against)} voted against it" if against else ""
            again = f"ask again (`txsaga workspace publish {name} --approval VOTER`)"
            return ConfigError(
                f"workspace {name!r} was not approved in transaction {txid}{said}; {again}, or {withdraw}"
            )
        if poll is None:
            about = f"transaction {txid} is about to ask about workspace {name!r}"
            return ConfigError(f"{about}; if its process is gone, {withdraw}")
        about = f"transaction {txid} asks whether workspace {name!r} is published"
        return ConfigError(f"{about}; vote on it (`txsaga tx ballots {txid}`), or {withdraw}")

    def _now(self, moment: KeptMoment) -> Mapping[TableName, Metadata]:
        """Return the metadata of all tables of a workspace."""
        now, begun = self._moments.now(moment), f"since workspace {moment.name!r} was begun"
        if gone := [str(table) for table in moment.tables if table not in now]:
            raise TableMoved(f"{', '.join(gone)} was dropped or renamed {begun}; drop the workspace")
        if lost := [str(table) for table, each in now.items() if snapshot_of(each.raw, moment.ref) is None]:
            self._require(self._found(moment.name), *UNPUBLISHED)
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
            if each.changed and (gate := gate_of(metadata.properties)) is not None:
                subject = self._lake.whole(each.table, metadata, metadata.snapshot(each.head))
                transaction.check(str(each.table), subject, gate)

    def _heads(self, life: TxRecord) -> Mapping[str, int]:
        """Return what main was pointed at by the transaction that published a workspace."""
        with self._broker.kernel.store.ledgers.open() as ledger:
            writes = [TableWrite.read(each.payload) for each in ledger.effects(life.txid)]
        updates = ((str(write.name), each) for write in writes for each in (write.change or {}).get("updates", ()))
        return {name: each["snapshot-id"] for name, each in updates if each.get("ref-name") == "main"}

    def _compared(self, moment: KeptMoment, table: TableName, now: Metadata) -> WorkspaceTable:
        base, head = moment.tables[table].snapshot, snapshot_of(now.raw, moment.ref)
        assert base is not None and head is not None  # a table without rows is in no workspace
        before, moved = now.snapshot(base), now.current_id != base
        if before is None:
            return WorkspaceTable(table, base, head, None, None, moved)
        found = differences.between(self._lake.storage, before, now.snapshot(head))
        removed = _rows(found.gone) + _rows(found.deletes) - _rows(found.deletes_gone)
        return WorkspaceTable(table, base, head, _rows(found.added), removed, moved)


def _ballot(moment: KeptMoment) -> str:
    return f"publish {moment.name}"


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
        updates = [_to("main", table.head, now)]
        required += [is_at("main", table.base), same_columns(now.raw)]
    return change_of(table.table, now, *updates, without(moment.ref), required=required, rows=table.added or 0)


def _told(tables: Sequence[WorkspaceTable]) -> str:
    said = [f"rows of {each.table}: {each.added} added, {each.removed} removed" for each in tables if each.changed]
    return "; ".join(said) or "no table was changed"


def _rows(files: Mapping[str, DataFile]) -> int:
    return sum(each.record_count for each in files.values() if each.content != DataFileContent.EQUALITY_DELETES)
