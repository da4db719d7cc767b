"""
Branches of tables: begun from the published snapshot, written to by another engine, then recorded as they are.

txsaga begins a branch, not the engine that writes to it: its start is known, and none is begun for a finished
transaction. It is only a name in the table's metadata; main is unchanged. If a writer stops anywhere, the branch is
never published, and the collector drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from pyiceberg.manifest import DataFile

from txsaga.errors import BranchMissed, ColumnsDiffer, PointerMoved, TableMoved
from txsaga.lake import differences, manifests
from txsaga.lake.differences import TRANSACTION, Difference
from txsaga.lake.metadata import Draft, Metadata, require_version
from txsaga.lake.storage import Storage
from txsaga.lake.table import (
    APPLICATION,
    MARK,
    BranchStart,
    Swap,
    TableName,
    TablePlace,
    TableWrite,
    WriteMode,
    branch_name,
    mark_of,
)

TRIES = 20
NOTHING = {
    "operation": "append",
    **dict.fromkeys(("total-data-files", "total-records", "total-files-size"), "0"),
    **dict.fromkeys(("total-delete-files", "total-position-deletes", "total-equality-deletes"), "0"),
}
"""The summary of an empty snapshot."""

Move = Callable[[Swap], None]


class TableBranches:
    """The branches of the tables of one catalog."""

    def __init__(self, metadata: Callable[[TableName], Metadata], storage: Storage) -> None:
        self._metadata, self._storage = metadata, storage

    def begin(self, name: TableName, place: TablePlace, move: Move) -> BranchStart:
        """Create a branch with the published snapshot; `move` moves a pointer or raises `PointerMoved`."""
        branch, started = branch_name(place), list[BranchStart]()

        def draw(metadata: Metadata, draft: Draft, written: list[str]) -> bool:
            if metadata.version != 3:  # txsaga can't write its manifests, but it has branches
                require_version(name, metadata.version)
            first = metadata.current_id
            if first is None:
                first = self._first(metadata, draft, written)
            draft.branch(branch, first)
            schema = int(metadata.raw["current-schema-id"])
            started.append(BranchStart(name, branch, metadata.uuid, metadata.current_id, first, schema))
            return True

        self._change(name, draw, move)
        return started[-1]

    def drop(self, name: TableName, chosen: Callable[[str], bool], move: Move | None) -> Sequence[str]:
        """Drop the branches that `chosen` selects and return them; without `move`, only return them."""
        found: list[str] = []

        def draw(metadata: Metadata, draft: Draft, written: list[str]) -> bool:
            found[:] = [each for each in metadata.raw.get("refs") or () if chosen(each)]
            draft.drop_branches(found)
            return bool(found) and move is not None

        self._change(name, draw, move or (lambda swap: None))
        return found

    def recorded(
        self, start: BranchStart, place: TablePlace, *, rebase: bool, looked: bool, application: str | None
    ) -> TableWrite | None:
        """Return the record of what a branch contains now; None if nothing was written to it.

        If a statement looked for rows (`looked`), it is no append, even if it only added rows. Raise `TableMoved` if
        the branch is not the one that was begun, and one clear error if its session wrote outside it.
        """
        metadata = self._metadata(start.table)
        head = _head(metadata, start)
        if head == start.first:
            return None
        chain = list(metadata.lineage(head))
        if start.first not in chain:
            raise TableMoved(f"branch {start.branch} of {start.table} was replaced; begin again")
        chain = chain[: chain.index(start.first)]
        _require_kept_to(metadata, start, application)
        newest = metadata.snapshot(head)
        found = differences.between(self._storage, metadata.snapshot(start.first), newest)
        added = not looked and only_appends(metadata, chain, found)
        mode = WriteMode.APPEND if added else WriteMode.OVERWRITE
        write = _write(metadata, start, place, head, mode, list(found.added.values()), rebase=rebase)
        if mode is WriteMode.OVERWRITE and not rebase:
            return write
        manifest = self._manifest(metadata, place, write.snapshot, list(found.added.values()))
        return replace(write, manifest=manifest)

    def _manifest(
        self, metadata: Metadata, place: TablePlace, snapshot: int, added: Sequence[DataFile]
    ) -> dict[str, object] | None:
        """Write our own manifest of the added files: the table may be newer when they are published."""
        if metadata.version != 2 or len({file.spec_id for file in added}) != 1:
            return None  # txsaga writes no version 3 manifests, and one manifest holds files of one spec
        return manifests.staged(self._storage, metadata, place, snapshot, added)

    def _change(self, name: TableName, draw: Callable[[Metadata, Draft, list[str]], bool], move: Move) -> None:
        """Write the next metadata on top of a table's newest and move the pointer; retry if it moved."""
        for _ in range(TRIES):
            metadata, written = self._metadata(name), list[str]()
            draft = Draft(metadata)
            if not draw(metadata, draft, written):
                return
            written.append(draft.next_location())
            self._storage.write(written[-1], draft.encoded())
            self._storage.keep(written)
            try:
                return move(Swap(name, metadata.location, written[-1]))
            except PointerMoved:
                for location in written:
                    self._storage.remove(location)
        raise PointerMoved(f"the pointer of table {name} moved {TRIES} times while a branch was to be changed; retry")

    def _first(self, metadata: Metadata, draft: Draft, written: list[str]) -> int:
        """Add an empty snapshot and return its id: a branch has to begin somewhere."""
        snapshot = metadata.parsed.new_snapshot_id()
        place = f"{metadata.folder('metadata')}/snap-{snapshot}-0-{uuid4()}.avro"
        written.append(place)
        manifests.list_written(self._storage, place, [], snapshot=snapshot, parent=None, sequence=draft.sequence)
        schema = int(metadata.raw["current-schema-id"])
        draft.name_snapshot(snapshot, place, NOTHING, schema=schema)
        return snapshot


def _write(
    metadata: Metadata,
    start: BranchStart,
    place: TablePlace,
    head: int,
    mode: WriteMode,
    added: Sequence[DataFile],
    *,
    rebase: bool,
) -> TableWrite:
    newest, parsed = metadata.snapshot(head) or {}, metadata.parsed
    return TableWrite(
        name=start.table,
        uuid=metadata.uuid,
        mode=mode,
        snapshot=parsed.new_snapshot_id(),
        manifest=None,
        schema=int(newest.get("schema-id", start.schema)),
        spec=added[0].spec_id if added else parsed.default_spec_id,
        base=start.base,
        **manifests.totals(added),
        properties={TRANSACTION: place.transaction},
        branch=start.branch,
        head=head,
        rebase=rebase,
    )


def _head(metadata: Metadata, start: BranchStart) -> int:
    """Return the newest snapshot of a branch, which must still be the one that was begun."""
    if metadata.uuid != start.uuid:
        raise TableMoved(f"table {start.table} was dropped and created again meanwhile; begin again")
    ref = (metadata.raw.get("refs") or {}).get(start.branch)
    if ref is None or metadata.snapshot(ref["snapshot-id"]) is None:
        raise TableMoved(f"branch {start.branch} of {start.table} was dropped; begin again")
    return int(ref["snapshot-id"])


def _require_kept_to(metadata: Metadata, start: BranchStart, application: str | None) -> None:
    """Refuse writes of the session outside its branch: they are already visible, and no decision can undo them."""
    for number in metadata.lineage(metadata.current_id):
        if number == start.base:
            break
        snapshot = metadata.snapshot(number)
        if snapshot is not None:
            _require_others(number, snapshot["summary"], start, application)
    if metadata.raw["current-schema-id"] != start.schema:
        raise ColumnsDiffer(
            f"the columns of {start.table} were changed while its branch was written: all branches of a table share "
            "its columns. Change them beforehand, in a separate statement, and begin again"
        )


def _require_others(number: int, summary: Mapping[str, str], start: BranchStart, application: str | None) -> None:
    """Refuse a snapshot that the branch's session wrote, or may have written: deletes of whole files carry no mark."""
    if summary.get(MARK) == mark_of(start.branch):
        raise BranchMissed(
            f"this session wrote snapshot {number} to table {start.table} itself, past its branch: it is visible, "
            "and no decision takes it back. Undo it there, and write to the identifier of the branch"
        )
    if application and summary.get("operation") == "delete" and summary.get(APPLICATION) == application:
        raise TableMoved(
            f"snapshot {number} of table {start.table} deleted rows while its branch was written: this session past "
            "its branch, or another session of this Spark application; begin again, and write to the identifier"
        )


def only_appends(metadata: Metadata, chain: Sequence[int], found: Difference) -> bool:
    """Return whether snapshots, which differ so from what was before, only add rows."""
    if found.gone or found.deletes or found.deletes_gone:
        return False
    snapshots = [metadata.snapshot(number) for number in chain]
    return all(each is not None and (each.get("summary") or {}).get("operation") == "append" for each in snapshots)
