"""
Tables of the open catalog: created, changed and dropped as Iceberg clients ask; each commit is a decision.

A commit is checked against the newest metadata first, so that a refusal costs no transaction. What was checked is
recorded, not what came out of it: whichever process decides applies the same updates to the metadata of that moment.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4

from txsaga.broker import Broker
from txsaga.catalog.files import MetadataFile, MetadataFiles, metadata_location
from txsaga.catalog.joining import JoinedTransaction, Staged
from txsaga.catalog.refusals import CatalogRefusal, bad, conflict, missing, refusal
from txsaga.catalog.requests import Change, Json, NewTable
from txsaga.catalog.store import CatalogStore
from txsaga.core.clock import wall_clock
from txsaga.core.failure import on_failure
from txsaga.core.lifecycle import TxState
from txsaga.errors import AlreadyCommitted, DecidedOtherwise, Superseded, TxSagaError
from txsaga.iceberg import table_metadata
from txsaga.iceberg.appends import append_in
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.lake.table import TableName, TableWrite, WriteMode

GROUP = "catalog"
"""The producer group of commits that are transactions of their own."""
BODY = "txsaga.catalog.request"
"""The property of a write that holds the digest of its request."""


class CommitScope(NamedTuple):
    """What a commit belongs to: the transaction of a token, or one of its own, perhaps with a key."""

    token: str | None = None
    key: str | None = None


class Keyed:
    """A request in its scope, with a digest that tells it from others under the same key."""

    def __init__(self, scope: CommitScope, *said: object) -> None:
        self.scope = scope
        self.digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class KeysUnderWay:
    """Lets one request of a key in at a time: a repeat waits for the first, and does not take it over."""

    def __init__(self) -> None:
        self._keys, self._left = set[str](), threading.Condition()

    @contextmanager
    def alone(self, key: str | None) -> Iterator[None]:
        """Wait until no other request of the key is under way, and keep others waiting."""
        if key is None:
            yield
            return
        with self._left:
            self._left.wait_for(lambda: key not in self._keys)
            self._keys.add(key)
        try:
            yield
        finally:
            with self._left:
                self._keys.remove(key)
                self._left.notify_all()


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
        self._kernel, self._store, self._files = broker.kernel, store, files
        self._lake = broker.kernel.tables.lake
        self._producer, self._keys = broker.producer(GROUP), KeysUnderWay()

    def load(self, name: TableName, scope: CommitScope) -> MetadataFile:
        """Return the metadata of a table; in a transaction as it is there."""
        pointer = self._lake.catalog.pointer(name)
        if scope.token is not None:
            staged = [each for each in self._joined(scope).staged() if each.name == name]
            if staged:
                return self._after(staged, pointer)
        if pointer is None:
            raise missing("Table", name)
        return self._files.read(pointer)

    def draft(self, name: TableName, new: NewTable) -> Json:
        """Return the first metadata of a table that its first commit will create."""
        self._store.require_free(name, "Table")
        location = new.location or self.location(name)
        request = new.model_dump(by_alias=True, exclude_none=True)
        return table_metadata.new_table(request, location.rstrip("/"), uuid=str(uuid4()), moment=now())

    def create(self, name: TableName, new: NewTable, scope: CommitScope) -> MetadataFile:
        """Create a table."""
        request = Keyed(scope, [*name], new.model_dump())
        made: list[MetadataFile] = []

        def create() -> None:
            raw = self.draft(name, new)
            made.append(self._files.write(metadata_location(raw, 0), raw))
            with on_failure(self._files.remove, made[0].location):
                self._decide([_created(name, made[0])], request)

        self._once(request, create)
        return made[0] if made else self.load(name, scope)

    def register(self, name: TableName, location: str, scope: CommitScope, *, overwrite: bool) -> MetadataFile:
        """Make a table of metadata that exists."""
        if overwrite:
            raise bad("a table can't be overwritten by registering; drop it first")
        request = Keyed(scope, [*name], location)

        def register() -> None:
            self._store.require_free(name, "Table")
            self._decide([_created(name, self._files.read(location))], request)

        self._once(request, register)
        return self.load(name, scope)

    def commit(self, changes: Sequence[TableChange], scope: CommitScope) -> None:
        """Commit to tables: all of them, or none."""
        names = [each.name for each in changes]
        if twice := {str(name) for name in names if names.count(name) > 1}:
            raise bad(f"table {', '.join(sorted(twice))} is changed twice in one commit; combine its updates")
        request = Keyed(scope, [[*each.name] for each in changes], [each.change.model_dump() for each in changes])
        if scope.token is not None:
            self._joined(scope).stage(lambda staged: self._writes(changes, staged, []))
        else:
            self._once(request, lambda: self._commit(changes, request))

    def _commit(self, changes: Sequence[TableChange], request: Keyed) -> None:
        created: list[str] = []
        with on_failure(self._remove, created):
            self._decide(self._writes(changes, (), created), request)

    def drop(self, name: TableName, *, purge: bool) -> None:
        """Drop a table; `purge` deletes its files as well, unless the table keeps them."""
        location = self._store.pointer(name, "Table")
        if purge and self._files.read(location).raw.get("properties", {}).get("gc.enabled") != "false":
            self._lake.catalog.purge_table((*name.namespace.split("."), name.table))
        else:
            self._store.drop(name, "Table")

    def _joined(self, scope: CommitScope) -> JoinedTransaction:
        assert scope.token is not None
        return JoinedTransaction(self._kernel, self._store, scope.token)

    def _remove(self, locations: Sequence[str]) -> None:
        for location in locations:
            self._files.remove(location)

    def location(self, name: TableName) -> str:
        """Return where a new table or view is stored, unless its creator says otherwise.

        The folder is its own, even if one of this name was renamed: removing orphans of one would hurt the other.
        """
        root = self._store.properties(name.catalog, name.namespace).get("location")
        root = root or f"{self._kernel.tables.warehouse}/{name.namespace}"
        return f"{root.rstrip('/')}/{name.table}-{uuid4().hex[:8]}"

    def _once(self, request: Keyed, work: Callable[[], None]) -> None:
        """Do a request, unless another one with its key is done; a repeat waits for the first.

        A refusal is final as well: the transaction of the key ends without a write. A failure of the server is not.
        """
        key = request.scope.key
        if key is None or request.scope.token is not None:
            return work()
        with self._keys.alone(key):
            if self._is_done(request):
                return
            try:
                work()
            except (CatalogRefusal, BadUpdate, RequirementFailed, TxSagaError) as error:
                if refusal(error).status >= 500 or not self._repeated_meanwhile(request):
                    raise

    def _repeated_meanwhile(self, request: Keyed) -> bool:
        """End the transaction of a refused request without a write; return whether a repeat elsewhere was done."""
        try:
            with self._producer.transaction(key=request.scope.key):
                return False
        except AlreadyCommitted:
            return self._is_done(request)

    def _decide(self, writes: Sequence[TableWrite], request: Keyed) -> None:
        """Make writes visible: now, or with the transaction of a token."""
        if request.scope.token is not None:
            return self._joined(request.scope).stage(lambda _: writes)
        try:
            with self._producer.transaction(key=request.scope.key) as transaction:
                transaction.change([replace(each, properties={BODY: request.digest}) for each in writes])
        except AlreadyCommitted as known:
            self._require_same(known.txid, request)
        except (DecidedOtherwise, Superseded) as lost:  # to a repeat at another server, which goes on
            raise CatalogRefusal(503, "ServiceUnavailableException", str(lost)) from lost

    def _is_done(self, request: Keyed) -> bool:
        """Return whether the transaction of a request's key is committed: the request is a repeated one."""
        with self._kernel.store.ledgers.open() as ledger:
            found = ledger.latest(self._producer.group.id, str(request.scope.key))
        if found is None or found.state is not TxState.COMMITTED:
            return False
        self._require_same(found.txid, request)
        return True

    def _require_same(self, txid: int, request: Keyed) -> None:
        with self._kernel.store.ledgers.open() as ledger:
            writes = [TableWrite.read(each.payload) for each in ledger.effects(txid)]
        key = request.scope.key
        if not writes:
            raise conflict(f"the request of Idempotency-Key {key!r} was refused; use another key")
        if any(each.properties.get(BODY) != request.digest for each in writes):
            what = f"Idempotency-Key {key!r} was used for another request"
            raise CatalogRefusal(422, "UnprocessableEntityException", what)

    def _writes(self, changes: Sequence[TableChange], staged: Staged, created: list[str]) -> list[TableWrite]:
        pointers = self._lake.catalog.pointers([each.name for each in changes])
        writes = []
        for each in changes:
            before = [write for write in staged if write.name == each.name]
            pointer = pointers.get(each.name)
            if pointer is None and not before:
                writes.append(self._creation(each, created))
            else:
                writes.append(self._change(each, self._after(before, pointer)))
        return writes

    def _creation(self, asked: TableChange, created: list[str]) -> TableWrite:
        """Write the first metadata of a table that a commit creates."""
        if not asked.creates:
            raise missing("Table", asked.name)
        self._store.require_free(asked.name, "Table")
        table_metadata.require(None, asked.change.requirements)
        raw = table_metadata.updated({}, asked.change.updates, moment=now(), location=None)
        raw = {**raw, "location": raw.get("location") or self.location(asked.name)}
        first = self._files.write(metadata_location(raw, 0), raw)
        created.append(first.location)
        return _created(asked.name, first)

    def _change(self, asked: TableChange, base: MetadataFile) -> TableWrite:
        change = {"requirements": asked.change.requirements, "updates": asked.change.updates}
        append = append_in(asked.change.requirements, asked.change.updates)
        if (
            append is not None
            and append.base != base.raw.get("current-snapshot-id")
            and base.raw["format-version"] == 2
        ):
            table_metadata.require(
                base.raw, append.requirements
            )  # it is put on top of what is there when it is decided
            after = base.raw
        else:
            table_metadata.require(base.raw, asked.change.requirements)
            after = table_metadata.updated(base.raw, asked.change.updates, moment=now(), location=None)
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

    def _after(self, staged: Staged, pointer: str | None) -> MetadataFile:
        """Return the metadata of a table as a transaction has changed it."""
        created = next((each.created for each in staged if each.created), None)
        location = created or pointer
        if location is None:
            raise missing("Table", staged[0].name)
        base = self._files.read(location)
        raw = base.raw
        for each in staged:
            if each.mode is WriteMode.CHANGE and each.change is not None:
                table_metadata.require(raw, each.change["requirements"])
                raw = table_metadata.updated(raw, each.change["updates"], moment=now(), location=None)
            elif each.mode is not WriteMode.CREATE:
                raise bad(f"the transaction writes to table {each.name} without this catalog; write to it in one way")
        if raw is base.raw:
            return base
        return MetadataFile(f"{location}#staged-{len(staged)}", json.dumps(raw).encode(), raw)


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


def _totals(summary: Mapping[str, str]) -> dict[str, Any]:
    named = {"files": "added-data-files", "rows": "added-records", "size": "added-files-size"}
    return {field: int(summary.get(key, 0)) for field, key in named.items()}


def now() -> int:
    """Return the time in milliseconds."""
    return int(wall_clock().timestamp() * 1000)
