"""
Tables of the open catalog: created, changed and dropped as Iceberg clients ask; each commit is a decision.

A commit is checked against the newest metadata first. What was checked is recorded, not what came out of it: whichever
process decides applies the same updates to the metadata of that moment. A commit with a key is checked once no earlier
request with that key can be committed any more: otherwise it could be refused for what that request changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pyiceberg.catalog import delete_data_files, delete_files

from txsaga.broker import Broker
from txsaga.catalog.files import MetadataFile, MetadataFiles, metadata_location
from txsaga.catalog.joining import JoinedTransaction
from txsaga.catalog.moments import CUT
from txsaga.catalog.refusals import CatalogRefusal, bad, conflict, missing, refusal, taken
from txsaga.catalog.repeats import BODY, CommitScope, Keyed, KeysUnderWay, Staged
from txsaga.catalog.requests import Change, Json, NewTable
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.table_gates import GatedChange, as_judged, gated, require_gate, same_gate, turn
from txsaga.core.clock import wall_clock
from txsaga.core.lifecycle import TxState
from txsaga.errors import AlreadyCommitted, DecidedOtherwise, Superseded, TxSagaError
from txsaga.iceberg import table_metadata
from txsaga.iceberg.appends import append_in
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.lake.table import TableName, TableWrite, WriteMode

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger

GROUP = "catalog"
"""The producer group of commits that are transactions of their own."""


class TableChange(NamedTuple):
    """A commit to one table."""

    name: TableName
    change: Change

    @property
    def creates(self) -> bool:
        """Whether the table must not exist yet."""
        return any(each.get("type") == "assert-create" for each in self.change.requirements)


class CatalogTables:
    """The tables of a catalog."""

    def __init__(self, broker: Broker, store: CatalogStore, files: MetadataFiles) -> None:
        self._kernel, self._store, self.files = broker.kernel, store, files
        self._lake = broker.kernel.tables.lake
        self._producer, self.keys = broker.producer(GROUP), KeysUnderWay()

    def load(self, name: TableName, scope: CommitScope) -> MetadataFile:
        """Return the metadata of a table; in a transaction as it is there."""
        return self._now(name, () if scope.token is None else self._joined(scope).staged())

    def draft(self, name: TableName, new: NewTable, staged: Staged = ()) -> Json:
        """Return the first metadata of a table that its first commit will create."""
        self._require_free(name, [each for each in staged if each.name == name])
        require_gate(new.properties)
        location = new.location or self.location(name)
        request = new.model_dump(by_alias=True, exclude_none=True)
        return table_metadata.new_table(request, location.rstrip("/"), uuid=str(uuid4()), moment=now())

    def create(self, name: TableName, new: NewTable, scope: CommitScope) -> MetadataFile:
        """Create a table."""
        with self.files.of_one_commit() as created:
            self._decide(
                lambda staged: [self._first(name, self.draft(name, new, staged), created)],
                Keyed(scope, [*name], new.model_dump()),
            )
        return self.load(name, scope)

    def register(self, name: TableName, location: str, scope: CommitScope, *, overwrite: bool) -> MetadataFile:
        """Make a table of metadata that exists."""
        if overwrite:
            raise bad("a table can't be overwritten by registering; drop it first")
        self._decide(lambda staged: [self._registered(name, location, staged)], Keyed(scope, [*name], location))
        return self.load(name, scope)

    def commit(self, changes: Sequence[TableChange], scope: CommitScope) -> None:
        """Commit to tables: all of them, or none."""
        names = [each.name for each in changes]
        if twice := {str(name) for name in names if names.count(name) > 1}:
            raise bad(f"table {', '.join(sorted(twice))} is changed twice in one commit; combine its updates")
        request = Keyed(scope, [[*each.name] for each in changes], [each.change.model_dump() for each in changes])
        judged: list[GatedChange] = []
        with self.files.of_one_commit() as created:
            self._decide(lambda staged: self._writes(changes, staged, created, judged), request, judged)

    def drop(self, name: TableName, scope: CommitScope, *, purge: bool) -> None:
        """Drop a table; `purge` deletes its files as well, unless the table keeps them."""
        if purge and scope.token is not None:
            raise bad("files can't be deleted by a transaction; drop the table in it, and purge nothing")
        gone: list[MetadataFile] = []

        def dropped(staged: Staged) -> Staged:
            gone.append(self._now(name, staged))
            if purge and (cuts := self._store.cuts_of(gone[0].raw["table-uuid"])):
                raise bad(f"table {name} is in cut {', '.join(cuts)}: release it first, or drop the table unpurged")
            return [_dropped(name, gone[0])]

        self._decide(dropped, Keyed(scope, "drop", [*name], purge))
        if purge and gone and gone[0].raw.get("properties", {}).get("gc.enabled") != "false":
            self._purge(gone[0].location)

    def rename(self, name: TableName, new: TableName, scope: CommitScope) -> None:
        """Rename a table."""

        def renamed(staged: Staged) -> Staged:
            table = self._now(name, staged)
            if any(each.name == name for each in staged):
                raise bad(f"the transaction has changed table {name}; rename it before, or in another one")
            self._store.require_free_to_rename(name, new)
            return [replace(_dropped(name, table), renames=table.location), _created(new, table)]

        self._decide(renamed, Keyed(scope, "rename", [*name], [*new]))

    def _now(self, name: TableName, staged: Staged) -> MetadataFile:
        """Return the metadata of a table as it is for a request."""
        pointer, before = self._lake.catalog.pointer(name), [each for each in staged if each.name == name]
        if pointer is None and not before:
            raise missing("Table", name)
        return self._after(before, pointer)

    def _purge(self, location: str) -> None:
        """Delete all files of a table that is gone."""
        table, io = self._lake.static(location), self._lake.storage.io(location)
        manifests = [each for snapshot in table.metadata.snapshots for each in snapshot.manifests(io)]
        delete_data_files(io, manifests)
        lists = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
        files = {each.manifest_path for each in manifests} | lists
        delete_files(io, files | {each.metadata_file for each in table.metadata.metadata_log} | {location}, "purged")

    def _joined(self, scope: CommitScope) -> JoinedTransaction:
        assert scope.token is not None
        return JoinedTransaction(self._kernel, self._store, scope.token, limited=scope.limited)

    def location(self, name: TableName) -> str:
        """Return where a new table or view is stored, unless its creator says otherwise.

        The folder is its own, even if one of this name was renamed: removing orphans of one would hurt the other.
        """
        return f"{self.root(name.catalog, name.namespace)}/{name.table}-{uuid4().hex[:8]}"

    def root(self, catalog: str, namespace: str) -> str:
        """Return the folder of a namespace."""
        said = self._store.properties(catalog, namespace).get("location")
        return (said or f"{self._kernel.tables.warehouse}/{namespace}").rstrip("/")

    def _decide(
        self, writes_after: Callable[[Staged], Staged], request: Keyed, judged: Sequence[GatedChange] = ()
    ) -> None:
        """Make writes visible: now, or with the transaction of a token. What has to be `judged` is known with them.

        A repeat of a key waits for the first request. A refusal is final as well: the transaction of the key ends
        without a write.
        """
        if request.scope.token is not None:
            return self._joined(request.scope).stage(lambda staged: request.added_to(staged, writes_after), judged)
        with self.keys.alone(request.scope.key):
            try:
                with self._producer.transaction(key=request.scope.key) as transaction:
                    transaction.change(request.added_to((), writes_after), request.scope.who)
                    for each in judged:
                        with turn():
                            if (subject := each.subject(self._lake, own=request.scope.limited)) is not None:
                                transaction.check(str(each.name), subject, each.gate)
            except (CatalogRefusal, BadUpdate, RequirementFailed, TxSagaError) as error:
                self.end(request, error)

    def end(self, request: Keyed, error: Exception) -> None:
        """Raise the error of a request, unless a repeat at another server was done."""
        if request.scope.key is None:
            raise conflict(f"{error}; commit again") if isinstance(error, Superseded | DecidedOtherwise) else error
        if isinstance(error, Superseded | DecidedOtherwise):
            if self.is_done(request):
                return
            raise CatalogRefusal(503, "ServiceUnavailableException", f"{error}; repeat the request") from None
        if refusal(error).status >= 500:
            raise error
        try:
            with self._producer.transaction(key=request.scope.key):
                pass  # without a write: refused
        except AlreadyCommitted:
            self.is_done(request)
        else:
            raise error

    def is_done(self, request: Keyed) -> bool:
        """Return whether the transaction of a request's key is committed: the request is a repeated one."""
        if request.scope.key is None:
            return False
        with self._kernel.store.ledgers.open() as ledger:
            found = ledger.latest(self._producer.group.id, request.scope.key)
            done = found is not None and found.state is TxState.COMMITTED
            digests = self._digests(ledger, found.txid) if found is not None and done else ()
        if done and not digests:
            raise conflict(f"the request of Idempotency-Key {request.scope.key!r} was refused; use another key")
        request.require_same(digests)
        return done

    def _digests(self, ledger: Ledger, txid: int) -> Sequence[str | None]:
        """Return the digests of the request that a transaction has committed; none if it was refused."""
        effects = [TableWrite.read(each.payload) for each in ledger.effects(txid)]
        return [each.properties.get(BODY) for each in effects] or self._store.within(ledger.connection).acted(txid)

    def _first(self, name: TableName, raw: Json, created: list[str]) -> TableWrite:
        """Write the first metadata of a table."""
        first = self.files.write(metadata_location(raw, 0), raw)
        created.append(first.location)
        return _created(name, first)

    def _require_free(self, name: TableName, before: Staged) -> None:
        """Refuse to create a table of a name that is taken, also in the transaction."""
        if not before:
            self._store.require_free(name, "Table")
        elif before[-1].mode is not WriteMode.DROP:
            raise taken(f"Table already exists: {name}")

    def _registered(self, name: TableName, location: str, staged: Staged) -> TableWrite:
        self._require_free(name, [each for each in staged if each.name == name])
        return _created(name, self.files.of("table", location))

    def _writes(
        self, changes: Sequence[TableChange], staged: Staged, created: list[str], judged: list[GatedChange]
    ) -> list[TableWrite]:
        pointers = self._lake.catalog.pointers([each.name for each in changes])
        writes = []
        for each in changes:
            before = [write for write in staged if write.name == each.name]
            pointer = pointers.get(each.name)
            if before[-1].mode is WriteMode.DROP if before else pointer is None:
                writes.append(self._creation(each, before, created, judged))
            else:
                writes.append(self._change(each, self._after(before, pointer), judged))
        return writes

    def _creation(
        self, asked: TableChange, before: Staged, created: list[str], judged: list[GatedChange]
    ) -> TableWrite:
        """Write the first metadata of a table that a commit creates."""
        if not asked.creates:
            raise missing("Table", asked.name)
        self._require_free(asked.name, before)
        table_metadata.require(None, asked.change.requirements)
        raw = table_metadata.updated({}, asked.change.updates, moment=now())
        raw = {**raw, "location": raw.get("location") or self.location(asked.name)}
        self._require_cuts({}, raw)
        judged += gated(asked.name, {}, raw, asked.change.updates)
        return self._first(asked.name, raw, created)

    def _change(self, asked: TableChange, base: MetadataFile, judged: list[GatedChange]) -> TableWrite:
        required = [*asked.change.requirements, same_gate(base.raw.get("properties"))]
        change = {"requirements": required, "updates": asked.change.updates}
        after = _changed(base.raw, change)
        self._require_cuts(base.raw, after)
        if found := [*gated(asked.name, base.raw, after, asked.change.updates)]:
            required += as_judged(base.raw, asked.change.requirements, asked.change.updates)
            judged += found
        added = [each["snapshot"] for each in asked.change.updates if each.get("action") == "add-snapshot"]
        newest: Mapping[str, Any] = added[-1] if added else {}
        return TableWrite(
            name=asked.name,
            uuid=str(base.raw["table-uuid"]),
            mode=WriteMode.CHANGE,
            snapshot=newest.get("snapshot-id", 0),
            manifest=None,
            schema=after["current-schema-id"],
            spec=after["default-spec-id"],
            **_totals(newest.get("summary") or {}),
            change=change,
        )

    def _require_cuts(self, before: Json, after: Json) -> None:
        """Refuse to move the tags of cuts, and to remove them while the cuts are kept."""
        old, new = _cut_tags(before), _cut_tags(after)
        for ref in sorted({**old, **new}):
            if old.get(ref) != new.get(ref) and (ref in new or self._store.is_kept(CUT, ref[len(CUT) + 1 :])):
                line = f"tag {ref} belongs to a cut: `txsaga cut keep` sets it, and `txsaga cut release` removes it"
                raise CatalogRefusal(403, "ForbiddenException", line)

    def _after(self, staged: Staged, pointer: str | None) -> MetadataFile:
        """Return the metadata of a table as a transaction has changed it."""
        dropped = max((at for at, each in enumerate(staged) if each.mode is WriteMode.DROP), default=-1)
        name, staged = staged[0].name if staged else None, staged[dropped + 1 :]
        created = next((each.created for each in staged if each.created), None)
        location = created or (pointer if dropped < 0 else None)
        if location is None:
            raise missing("Table", name)
        base = self.files.read(location)
        raw = base.raw
        for each in staged:
            if each.change is not None:
                raw = _changed(raw, each.change)
            elif each.mode is not WriteMode.CREATE:
                raise bad(f"the transaction writes to table {each.name} without this catalog; write to it in one way")
        if raw is base.raw:
            return base
        return MetadataFile(f"{location}#staged-{len(staged)}", json.dumps(raw).encode(), raw)


def _changed(raw: Json, change: Mapping[str, Sequence[Json]]) -> Json:
    """Return the metadata after a commit; an append on an old snapshot as if it were on the newest."""
    requirements, updates = change["requirements"], change["updates"]
    append, newest = append_in(requirements, updates), raw.get("current-snapshot-id")
    if append is not None and append.moves_on(raw):
        current = next((each for each in raw.get("snapshots") or () if each["snapshot-id"] == newest), None)
        place = {"sequence": raw.get("last-sequence-number", 0) + 1, "manifest_list": append.snapshot["manifest-list"]}
        requirements, updates = append.requirements, append.on(current, **place, moment=now())
    table_metadata.require(raw, requirements)
    return table_metadata.updated(raw, updates, moment=now())


def _cut_tags(raw: Json) -> Json:
    return {ref: said for ref, said in (raw.get("refs") or {}).items() if ref.startswith(f"{CUT}-")}


def _created(name: TableName, first: MetadataFile) -> TableWrite:
    return TableWrite(
        name=name,
        uuid=str(first.raw["table-uuid"]),
        mode=WriteMode.CREATE,
        snapshot=0,
        manifest=None,
        schema=first.raw.get("current-schema-id", 0),
        spec=first.raw.get("default-spec-id", 0),
        created=first.location,
    )


def _dropped(name: TableName, last: MetadataFile) -> TableWrite:
    return replace(_created(name, last), mode=WriteMode.DROP, created=None)


def _totals(summary: Mapping[str, str]) -> dict[str, Any]:
    named = {"files": "added-data-files", "rows": "added-records", "size": "added-files-size"}
    told = {field: str(summary.get(key, 0)) for field, key in named.items()}
    return {field: int(said) if said.isdecimal() else 0 for field, said in told.items()}


def now() -> int:
    """Return the time in milliseconds."""
    return int(wall_clock().timestamp() * 1000)
