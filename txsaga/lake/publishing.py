"""
Publishing prepared writes: the next metadata of each table, written ahead of the decision that moves the pointers.

An append never conflicts: it goes on top of the newest snapshot. An overwrite replaces exactly what it is based on: if
a file of its partitions was added, removed or deleted from since, it is refused, and its transaction rolls back. If
main has not moved, a branch becomes main as recorded; otherwise it is published as one of these two. A process that
stops in here leaves metadata without a pointer; the next one to decide writes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.manifest import ManifestContent, ManifestFile

from txsaga.core.failure import on_failure
from txsaga.errors import TableMoved
from txsaga.iceberg.appends import append_in, touches_snapshots
from txsaga.lake import manifests
from txsaga.lake.differences import REMEDY, Replaced, rebased, replaced, summary_of
from txsaga.lake.metadata import Draft, Json, Metadata, require_version
from txsaga.lake.storage import Storage
from txsaga.lake.table import Effect, Swap, TableName, TableWrite, WriteMode

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


STAGED = (WriteMode.APPEND, WriteMode.OVERWRITE)
Pointers = Callable[[Sequence[TableName]], Mapping[TableName, str]]
Turn = Callable[[Sequence[TableName]], ExitStack]


class Swaps:
    """The pointers of one transaction, ready to be moved."""

    def __init__(self, storage: Storage, turn: ExitStack) -> None:
        self._storage, self._turn = storage, turn
        self.swaps: list[Swap] = []
        self.written: list[str] = []

    def apply(self, ledger: Ledger) -> None:
        """Move the pointers in the decision's transaction."""
        ledger.swap(self.swaps)

    def drop(self) -> None:
        """Delete files that no pointer leads to."""
        try:
            for location in self.written:
                self._storage.remove(location)
        finally:
            self.done()

    def done(self) -> None:
        """Release the turn to other processes."""
        self._turn.close()


class Publisher:
    """Makes the writes of a transaction ready."""

    def __init__(self, storage: Storage, pointers: Pointers, turn: Turn) -> None:
        self._storage, self._pointers, self._turn = storage, pointers, turn

    def make_ready(self, effects: Sequence[Effect], *, again: int) -> Swaps:
        """Write the next metadata of every table, one after the other."""
        writes = [TableWrite.read(effect.payload) for effect in effects]
        names = sorted(dict.fromkeys(write.name for write in writes))
        swaps = Swaps(self._storage, self._turn(names) if again else ExitStack())  # after a conflict, wait for the turn
        with on_failure(swaps.drop):
            pointers = self._pointers(names)
            for name in names:
                self._build(pointers.get(name), [write for write in writes if write.name == name], swaps)
            self._storage.keep(swaps.written)
        return swaps

    def require_unmoved(self, write: TableWrite) -> None:
        """Raise `TableMoved` if an overwrite can no longer be published."""
        metadata = self._newest(self._pointers([write.name]).get(write.name), [write])
        if write.mode is WriteMode.OVERWRITE and not _is_unmoved(write, metadata.current):
            self._gone(write, metadata, metadata.current)

    def _newest(self, pointer: str | None, writes: Sequence[TableWrite]) -> Metadata:
        name, created = writes[0].name, writes[0].created
        if created is not None and pointer is not None:
            raise TableMoved(f"table {name} was created by another process meanwhile; begin again, without creating it")
        location = created or pointer
        if location is None:
            raise TableMoved(f"table {name} was dropped meanwhile; begin again")
        metadata = Metadata.load(self._storage, location)
        if any(write.uuid != metadata.uuid for write in writes):
            raise TableMoved(f"table {name} was dropped and created again meanwhile; begin again")
        if any(write.branch is None and write.mode in STAGED for write in writes):
            require_version(name, metadata.version)
        return metadata

    def _build(self, pointer: str | None, writes: Sequence[TableWrite], swaps: Swaps) -> None:
        if drops := [at for at, each in enumerate(writes) if each.mode is WriteMode.DROP]:
            self._require_same(pointer, writes[: drops[-1]], writes[drops[-1]])
            swaps.swaps.append(Swap(writes[0].name, pointer, None))
            pointer, writes = None, writes[drops[-1] + 1 :]
        if writes:
            self._build_next(pointer, writes, swaps)

    def _require_same(self, pointer: str | None, before: Sequence[TableWrite], drop: TableWrite) -> None:
        """Refuse to drop another table of this name, or one that has changed since it was to be renamed."""
        if pointer is None or drop.uuid != Metadata.load(self._storage, pointer).uuid:
            raise TableMoved(f"table {drop.name} was dropped meanwhile; begin again")
        if drop.renames is not None and (before or drop.renames != pointer):
            raise TableMoved(f"table {drop.name} was changed before it was renamed; rename it in another transaction")

    def _build_next(self, pointer: str | None, writes: Sequence[TableWrite], swaps: Swaps) -> None:
        name, metadata = writes[0].name, self._newest(pointer, writes)
        if (done := _known(metadata, writes)) is not None:
            raise TableMoved(f"snapshot {done} is already in table {name}: its transaction was restored from a backup")
        old = None if writes[0].created else metadata.location
        writes = [write for write in writes if write.mode is not WriteMode.CREATE]
        if not writes:
            swaps.swaps.append(Swap(name, old, metadata.location))
            return
        draft = Draft(metadata)
        for write in writes:
            self._put(write, metadata, draft, swaps)
        location = draft.next_location()
        swaps.written.append(location)
        self._storage.write(location, draft.encoded())
        swaps.swaps.append(Swap(name, old, location))

    def _put(self, write: TableWrite, metadata: Metadata, draft: Draft, swaps: Swaps) -> None:
        if write.change is not None:
            try:
                draft.change(*self._rebased(metadata, draft, write.change, swaps))
            except (ValueError, FileNotFoundError) as refused:
                raise TableMoved(f"table {write.name} has changed meanwhile: {refused}; begin again") from None
            return
        _require_schema(write, metadata)
        if write.branch is not None and self._led(write, metadata, draft):
            return
        before = draft.current
        kept, gone = self._kept(write, metadata, draft, swaps)
        added = [] if write.manifest is None or gone.carried else [manifests.read(write.manifest)]
        added += gone.carried
        stem = f"{metadata.folder('metadata')}/snap-{write.snapshot}-0-{uuid4()}.avro"
        swaps.written.append(stem)
        manifests.list_written(
            self._storage,
            stem,
            [*added, *kept],
            snapshot=write.snapshot,
            parent=None if before is None else before["snapshot-id"],
            sequence=draft.sequence,
        )
        summary = summary_of(write, gone, None if before is None else before["summary"])
        draft.name_snapshot(write.snapshot, stem, summary, schema=write.schema)
        draft.lead(write.snapshot)

    def _rebased(
        self, metadata: Metadata, draft: Draft, change: Mapping[str, Sequence[Json]], swaps: Swaps
    ) -> tuple[Sequence[Json], Sequence[Json]]:
        """Return what an Iceberg client asks for; an append is put on top of what was published since."""
        append, current = append_in(change["requirements"], change["updates"]), draft.current
        now = None if current is None else current["snapshot-id"]
        moves = append is not None and append.moves_on(draft.raw)
        if not moves and not (draft.rebased and touches_snapshots(change["updates"])):
            return change["requirements"], change["updates"]
        if append is None:
            raise ValueError("main has changed, and only appends are put on top of that")
        draft.rebased = True  # what is based on this append lacks what it was put on top of
        location = f"{metadata.folder('metadata')}/snap-{append.snapshot['snapshot-id']}-1-{uuid4()}.avro"
        swaps.written.append(location)
        listed = [*manifests.added_by(self._storage, append.snapshot), *manifests.listed(self._storage, current)]
        snapshot, sequence = int(append.snapshot["snapshot-id"]), draft.sequence
        manifests.list_written(self._storage, location, listed, snapshot=snapshot, parent=now, sequence=sequence)
        return append.requirements, append.on(current, sequence=sequence, manifest_list=location, moment=draft.moment())

    def _led(self, write: TableWrite, metadata: Metadata, draft: Draft) -> bool:
        """Drop a branch; if main has not moved since it was begun, point main at its head and return True."""
        if write.head is None or metadata.snapshot(write.head) is None:
            raise TableMoved(f"the content of branch {write.branch} of {write.name} is no longer known; {REMEDY}")
        unmoved = _is_unmoved(write, draft.current)
        if unmoved:
            draft.lead(write.head)
        elif metadata.version != 2 or (write.mode is WriteMode.APPEND and write.files and write.manifest is None):
            raise TableMoved(
                f"table {write.name} was changed while its branch was written, and a branch with format version "
                f"{metadata.version}, or of a repartitioned table, can't be applied to that; {REMEDY}"
            )
        draft.drop_branches([str(write.branch)])
        return unmoved

    def _kept(
        self, write: TableWrite, metadata: Metadata, draft: Draft, swaps: Swaps
    ) -> tuple[list[ManifestFile], Replaced]:
        """Return the manifests that stay, some of them rewritten, and what an overwrite replaces."""
        before = draft.current
        there = manifests.listed(self._storage, before)

        def fresh() -> str:
            swaps.written.append(f"{metadata.folder('metadata')}/{uuid4()}-m0.avro")
            return swaps.written[-1]

        if write.mode is WriteMode.APPEND:
            return manifests.merged(self._storage, metadata, there, write.snapshot, fresh), Replaced()
        gone = self._gone(write, metadata, before)
        kept = []
        for manifest in there:
            entries = gone.entries.get(manifest.manifest_path)
            if manifest.content != ManifestContent.DATA or entries is None:
                kept.append(manifest)
                continue
            spec, snapshot = manifest.partition_spec_id, write.snapshot
            again = (self._storage, metadata.parsed, spec, fresh(), snapshot, entries, gone.paths)
            kept.append(manifests.rewritten(*again))
        return kept, gone

    def _gone(self, write: TableWrite, metadata: Metadata, before: Mapping[str, Any] | None) -> Replaced:
        if write.branch is not None:
            return rebased(self._storage, metadata, write, before)
        return replaced(self._storage, metadata, write, before)


def _known(metadata: Metadata, writes: Sequence[TableWrite]) -> int | None:
    published = set(metadata.lineage(metadata.current_id)) if any(write.branch for write in writes) else set[int]()
    for write in writes:
        if write.head in published or metadata.snapshot(write.snapshot) is not None:
            return write.snapshot
    return None


def _is_unmoved(write: TableWrite, now: Mapping[str, Any] | None) -> bool:
    return write.branch is not None and write.base == (None if now is None else now["snapshot-id"])


def _require_schema(write: TableWrite, metadata: Metadata) -> None:
    """Refuse rows that lack columns which the table has required since they were staged."""
    schemas = {each["schema-id"]: each["fields"] for each in metadata.raw["schemas"]}
    staged = {field["id"] for field in schemas.get(write.schema, ())}
    for field in schemas[metadata.raw["current-schema-id"]]:
        if field["required"] and field["id"] not in staged:
            raise TableMoved(f"table {write.name} requires {field['name']!r} since the rows were staged; begin again")
