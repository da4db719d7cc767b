"""
Workspaces: a branch of one name in many tables, written by any engine and published by one decision.

Each table has the branch from the same moment on. Engines that use the prefix of a workspace see its branches as main.
What they share with the table itself (columns, properties, location) can't be changed there: it would be visible at
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from pyiceberg.manifest import DataFile, DataFileContent

from txsaga.broker import Broker
from txsaga.catalog.cuts import NAME, CutStore, CutTables, change_of, names_of
from txsaga.catalog.joining import JoinedTransaction
from txsaga.catalog.refusals import CatalogRefusal
from txsaga.catalog.repeats import CommitScope
from txsaga.catalog.requests import Change, Json
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.table_gates import gate_of
from txsaga.catalog.tables import CatalogTables, TableChange
from txsaga.core.decision import Decision
from txsaga.core.failure import on_failure
from txsaga.core.lifecycle import TxState
from txsaga.errors import AlreadyCommitted, ConfigError, TableMoved
from txsaga.flows.ballot import Result
from txsaga.flows.flow import Flow
from txsaga.gate.expecting import SuiteGate
from txsaga.iceberg.as_of import snapshot_of
from txsaga.lake import differences
from txsaga.lake.metadata import Metadata
from txsaga.lake.table import TableName, TableWrite, WriteMode
from txsaga.messages.transaction import Transaction

PREFIX = "workspace-"
"""The beginning of the name of a workspace's branches, and of the prefix under which it is served."""
GROUP = "workspaces"
OWN_ACTIONS = {"add-snapshot", "set-snapshot-ref", "set-statistics", "remove-statistics", "set-partition-statistics"}
"""What a commit to a branch may do; everything else changes the table for all."""
PATIENCE = timedelta(days=30)
"""How long a workspace waits for an approval; then it is not published."""


class WorkspaceTable(NamedTuple):
    """A table in a workspace, and what was changed there."""

    table: TableName
    base: int
    head: int
    added: int
    """Rows in files that were added."""
    removed: int
    """Rows in files that were removed, or named by delete files; rows deleted by their values are not counted."""
    moved: bool
    """Whether main has changed since."""

    @property
    def changed(self) -> bool:
        """Whether anything was written to it."""
        return self.head != self.base


class Publication(NamedTuple):
    """What publishes a workspace: the differences by table, the writes, and the gates of the tables."""

    tables: Sequence[WorkspaceTable]
    writes: Sequence[TableWrite]
    gates: Mapping[TableName, SuiteGate | None]

    @property
    def told(self) -> str:
        """The differences in a line."""
        changed = [each for each in self.tables if each.changed]
        said = [f"rows of {each.table}: {each.added} added, {each.removed} removed" for each in changed]
        return "; ".join(said) or "no table was changed"


class Workspaces:
    """The workspaces of a store."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._lake = broker, broker.kernel.tables.lake
        self._producer = broker.producer(GROUP)

    def create(self, name: str, tables: Iterable[str], who: str) -> Sequence[TableName]:
        """Begin a branch in each table that matches, all at the same moment."""
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"a workspace can't be named {name!r}: write up to 100 small letters, digits, - and _")
        named = [str(each) for each in names_of(self._broker, tables)]
        with self._broker.cut(tables=named) as cut:
            pass  # what it read stays readable
        read = {table: Metadata.load(self._lake.storage, at) for table, at in cut.pointers.items()}
        if empty := [str(table) for table, each in read.items() if each.current_id is None]:
            raise ConfigError(f"{', '.join(empty)}: a table without rows has no branch; append some first")
        if not read:
            raise ConfigError("no table matches; give names such as sales.*")
        begun = {"action": "set-snapshot-ref", "ref-name": f"{PREFIX}{name}", "type": "branch"}
        writes = [change_of(table, each, {**begun, "snapshot-id": each.current_id}) for table, each in read.items()]
        self._decide(f"create {name}", writes, who)
        return sorted(read)

    def names(self) -> Mapping[str, int]:
        """Return the workspaces, and how many tables each has."""
        pointers = self._lake.catalog.pointers([*names_of(self._broker, ["*"])])
        refs = (ref for at in pointers.values() for ref in Metadata.load(self._lake.storage, at).raw.get("refs") or ())
        return Counter(ref.removeprefix(PREFIX) for ref in refs if ref.startswith(PREFIX))

    def diff(self, name: str) -> Sequence[WorkspaceTable]:
        """Return what was changed in a workspace, by table."""
        return [self._compared(table, metadata, name) for table, metadata in self._of(name)]

    def publish(self, name: str, who: str) -> Sequence[WorkspaceTable]:
        """Make all that was written in a workspace visible by one decision, which ends it."""
        self._require_not_asked(name)
        found = self._publication(name)
        try:
            with self._producer.transaction(key=_key(name)) as transaction:
                transaction.change(found.writes, who)
                self._judge(found, transaction)
        except AlreadyCommitted:
            raise _done_before(_key(name)) from None
        return found.tables

    def ask(self, name: str, voters: Sequence[str], who: str) -> tuple[int, Sequence[WorkspaceTable]]:
        """Ask voters whether a workspace becomes visible as it is now; return the transaction that waits for them.

        Who asks votes yes, with what would change as the reason.
        """
        self._require_not_asked(name)
        found, kernel, asker = self._publication(name), self._broker.kernel, who.rpartition("@")[0] or who
        if asker in voters:
            raise ConfigError(f"{asker!r} asks, so somebody else has to approve it; name another voter")
        try:
            flow = self._producer.begin_flow(key=_key(name), lease=PATIENCE)
        except AlreadyCommitted:
            raise _done_before(_key(name)) from None
        with on_failure(flow.roll_back):
            with flow.step("publish"):
                store = CatalogStore(kernel.store.engine, kernel.store.namespace)
                JoinedTransaction(kernel, store, flow.token()).stage(lambda _: found.writes, ())
                self._judge(found, flow)
            flow.ballot(_key(name), asker, *voters)
            flow.vote(_key(name), asker, yes=True, evidence={"reason": found.told, "by": who})
        return flow.txid, found.tables

    def asked(self, name: str) -> tuple[int, Sequence[str]] | None:
        """Return the transaction that asks whether a workspace is published, and whose yes is missing."""
        with self._broker.kernel.store.ledgers.open() as ledger:
            life = ledger.latest(self._producer.group.id, _key(name))
            if life is None or life.state is not TxState.ACTIVE or life.lease is None:
                return None
            return life.txid, [voter for poll in ledger.ballots(life.txid) for voter in poll.missing]

    def drop(self, name: str, who: str) -> int:
        """Remove the branches of a workspace; return of how many tables."""
        self._require_not_asked(name)
        gone = {"action": "remove-snapshot-ref", "ref-name": f"{PREFIX}{name}"}
        writes = [change_of(table, metadata, gone) for table, metadata in self._of(name)]
        with self._producer.transaction() as transaction:
            transaction.change(writes, who)
        return len(writes)

    def _require_not_asked(self, name: str) -> None:
        if (asked := self.asked(name)) is not None:
            raise ConfigError(
                f"transaction {asked[0]} asks whether workspace {name!r} is published; vote on it (`txsaga tx ballots "
                f"{asked[0]}`), or take it back: `txsaga tx rollback {asked[0]}`"
            )

    def _publication(self, name: str) -> Publication:
        """Return what publishes a workspace as it is now: one that is written to later is not published."""
        metadata, branch = dict(self._of(name)), f"{PREFIX}{name}"
        tables = [self._compared(table, each, name) for table, each in metadata.items()]
        if moved := [str(each.table) for each in tables if each.moved and each.changed]:
            raise TableMoved(
                f"{', '.join(moved)} changed since workspace {name!r} was begun; write it again in a new one"
            )
        writes, gone = list[TableWrite](), {"action": "remove-snapshot-ref", "ref-name": branch}
        for each in tables:
            same = {"type": "assert-ref-snapshot-id", "ref": branch, "snapshot-id": each.head}
            updates = [] if each.changed else [gone]
            writes.append(change_of(each.table, metadata[each.table], *updates, required=[same]))
            if each.changed:
                writes.append(_published(each, metadata[each.table], branch))
        gates = {table: gate_of(each.properties) for table, each in metadata.items()}
        return Publication(tables, writes, gates)

    def _judge(self, found: Publication, transaction: Transaction | Flow) -> None:
        """Let the gates of the changed tables judge what main would become."""
        for write in found.writes:
            gate = found.gates[write.name]
            if gate is not None and write.head is not None:
                transaction.check(str(write.name), self._lake.subject(write), gate)

    def undo(self, name: str, who: str) -> Sequence[TableName]:
        """Point the tables of a published workspace back at what they were, unless they changed since."""
        with self._broker.kernel.store.ledgers.open() as ledger:
            life = ledger.latest(self._producer.group.id, _key(name))
            done = life is not None and life.state is TxState.COMMITTED
            effects = ledger.effects(life.txid) if life is not None and done else ()
        published = [each for each in (TableWrite.read(effect.payload) for effect in effects) if each.head is not None]
        if not published:
            raise ConfigError(f"no workspace {name!r} was published")
        self._decide(f"undo {name}", [_undone(each) for each in published], who)
        return [each.name for each in published]

    def _decide(self, key: str, writes: Sequence[TableWrite], who: str) -> None:
        try:
            with self._producer.transaction(key=key) as transaction:
                transaction.change(writes, who)
        except AlreadyCommitted:
            raise _done_before(key) from None

    def _of(self, name: str) -> Iterator[tuple[TableName, Metadata]]:
        """Yield the tables that have the branch of a workspace."""
        pointers, found = self._lake.catalog.pointers([*names_of(self._broker, ["*"])]), False
        for table, location in sorted(pointers.items()):
            metadata = Metadata.load(self._lake.storage, location)
            if snapshot_of(metadata.raw, f"{PREFIX}{name}") is not None:
                found = True
                yield table, metadata
        if not found:
            raise ConfigError(f"there is no workspace {name!r}")

    def _compared(self, table: TableName, metadata: Metadata, name: str) -> WorkspaceTable:
        head = snapshot_of(metadata.raw, f"{PREFIX}{name}")
        assert head is not None
        main = set(metadata.lineage(metadata.current_id))
        base = next((number for number in metadata.lineage(head) if number in main), None)
        if base is None:
            raise TableMoved(f"table {table} has lost the snapshot that workspace {name!r} was begun from")
        found = differences.between(self._lake.storage, metadata.snapshot(base), metadata.snapshot(head))
        removed = _rows(found.gone) + _rows(found.deletes) - _rows(found.deletes_gone)
        return WorkspaceTable(table, base, head, _rows(found.added), removed, metadata.current_id != base)


def settled(broker: Broker, txid: int) -> Decision | None:
    """Publish the workspace that a transaction asks about, or don't, if all votes are cast; return what was decided."""
    store = broker.kernel.store
    with store.ledgers.open() as ledger:
        found, polls = ledger.flows.look(txid), ledger.ballots(txid)
    if found is None or found.life.state is not TxState.ACTIVE:
        return None
    if found.life.key not in [each.ballot.name for each in polls]:  # it was not asked yet
        return None
    if store.registry.group_by_id(found.life.group).name != GROUP or any(each.result is Result.OPEN for each in polls):
        return None
    flow = Flow(broker.kernel, found)
    if any(each.result is Result.REFUSED for each in polls):
        flow.roll_back("it was not approved")
        return Decision.ROLLBACK
    with suppress(AlreadyCommitted):  # by another voter at the same moment
        flow.end()
    return Decision.COMMIT


def _key(name: str) -> str:
    return f"publish {name}"


def _done_before(key: str) -> ConfigError:
    return ConfigError(f"this was done before ({key}); choose another name")


def _rows(files: Mapping[str, DataFile]) -> int:
    return sum(each.record_count for each in files.values() if each.content != DataFileContent.EQUALITY_DELETES)


def _published(table: WorkspaceTable, metadata: Metadata, branch: str) -> TableWrite:
    return TableWrite(
        name=table.table,
        uuid=metadata.uuid,
        mode=WriteMode.OVERWRITE,
        snapshot=metadata.parsed.new_snapshot_id(),
        manifest=None,
        schema=metadata.raw["current-schema-id"],
        spec=metadata.raw["default-spec-id"],
        base=table.base,
        rows=table.added,
        branch=branch,
        head=table.head,
    )


def _undone(write: TableWrite) -> TableWrite:
    """Return the change that points main back, if it is still at what was published."""
    assert write.base is not None
    required = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": write.head}
    back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": write.base}
    change: dict[str, list[Json]] = {"requirements": [required], "updates": [back]}
    return TableWrite(
        name=write.name,
        uuid=write.uuid,
        mode=WriteMode.CHANGE,
        snapshot=0,
        manifest=None,
        schema=write.schema,
        spec=write.spec,
        change=change,
    )


class WorkspaceTables(CutTables):
    """The tables of a workspace, as clients of its prefix see and change them."""

    def __init__(self, store: CutStore, whole: CatalogTables, branch: str) -> None:
        super().__init__(store, whole.files, branch)
        self._whole = whole

    def root(self, catalog: str, namespace: str) -> str:
        """Return the folder of a namespace."""
        return self._whole.root(catalog, namespace)

    def commit(self, changes: Sequence[TableChange], scope: CommitScope) -> None:
        """Commit to the branches of tables."""
        for each in changes:
            self._store.pointer(each.name, "Table")
        self._whole.commit([TableChange(each.name, on_branch(each.change, self._ref)) for each in changes], scope)


def on_branch(change: Change, branch: str) -> Change:
    """Return a commit to main as one to a branch; refuse what would change the table for all."""
    if wrong := [each.get("action") for each in change.updates if each.get("action") not in OWN_ACTIONS]:
        raise CatalogRefusal(
            406,
            "UnsupportedOperationException",
            f"{wrong[0]} changes the table for all: do it outside of the workspace",
        )
    requirements = [_moved(each, "ref", branch) for each in change.requirements]
    return change.model_copy(
        update={
            "requirements": requirements,
            "updates": [_moved(each, "ref-name", branch) for each in change.updates],
        }
    )


def _moved(said: Json, key: str, branch: str) -> Json:
    if key not in said:
        return said
    if said[key] != "main":
        raise CatalogRefusal(406, "UnsupportedOperationException", "a workspace has no other branches and tags")
    return {**said, key: branch}
