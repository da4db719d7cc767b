"""Cases about files: what a reader was handed stays readable. Real appends are written by PyIceberg."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from txsaga.testing.catalog.client import CatalogReply, Json
from txsaga.testing.catalog.namespace import (
    KitNamespace,
    LoadedTable,
    NotSupported,
    Violated,
    at_once,
    in_background,
    new_key,
    same_table,
    set_counter,
)

TABLES = ("a", "b", "c")
CLIENTS = 4
ROUNDS = 3
MAIN = "main"


def metadata_kept(space: KitNamespace) -> str:
    """After commits that fail, win or are repeated, every metadata file a reader was handed is there, with its data."""
    space.create(*TABLES)
    require_reachable(space.load("a"))
    handed = HandedOut(space)
    with in_background(handed.read):
        for n in range(1, ROUNDS + 1):
            _append_at_once(space, handed, n)
    files = len(handed.first)
    return f"{files} metadata files handed out during {ROUNDS} rounds of {CLIENTS} appends are there, with their data"


@dataclass
class HandedOut:
    """The metadata locations that readers were handed."""

    space: KitNamespace
    first: dict[str, LoadedTable] = field(default_factory=dict)
    last: dict[str, LoadedTable] = field(default_factory=dict)

    def read(self, over: threading.Event) -> None:
        """Load the tables until it is over."""
        while not over.is_set():
            self.look()

    def look(self) -> None:
        """Load each table once."""
        for name in TABLES:
            table = self.space.load(name)
            self.first.setdefault(table.metadata_location, table)
            self.last[name] = table

    def check(self) -> None:
        """Check that every file is there."""
        gone = [where for where, table in [*self.first.items()] if not files_of(table).new_input(where).exists()]
        if gone:
            raise Violated(
                f"{len(gone)} of {len(self.first)} metadata files are gone that were handed out, as {gone[0]}"
            )


def _append_at_once(space: KitNamespace, handed: HandedOut, n: int) -> None:
    """Append to all tables by several clients from one base, one of them with a requirement that fails."""
    bases = [space.load(table) for table in TABLES]
    commits = [[append(space, base, n, f"client {number}") for base in bases] for number in range(CLIENTS)]
    commits[0][-1]["requirements"].append({"type": "assert-table-uuid", "uuid": str(uuid4())})
    at_once([partial(_commit_and_repeat, space, changes) for changes in commits])
    handed.look()
    handed.check()
    for table in handed.last.values():
        _require_files(table)


def _commit_and_repeat(space: KitNamespace, changes: Sequence[Json]) -> CatalogReply:
    key = new_key() if space.client.remembers_keys else None
    reply = space.commit(changes, key)
    return space.commit(changes, key) if key else reply


def _require_files(table: LoadedTable) -> None:
    """Check that the current snapshot can be read down to its data."""
    files = files_of(table)
    current = next((each for each in table.metadata["snapshots"] if each["snapshot-id"] == table.snapshot_id), None)
    if current is None:
        raise Violated(f"table {table.name} has no snapshot after appends of which one must have won")
    for location in (current["manifest-list"], *_below(files, current["manifest-list"])):
        if not files.new_input(location).exists():
            raise Violated(f"table {table.name} is at {table.metadata_location}, and its file {location} is gone")


def _below(files: Any, manifest_list: str) -> Iterator[str]:
    from pyiceberg.manifest import read_manifest_list

    if not files.new_input(manifest_list).exists():
        return
    for manifest in read_manifest_list(files.new_input(manifest_list)):
        yield manifest.manifest_path
        if files.new_input(manifest.manifest_path).exists():
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(files))


def require_reachable(table: LoadedTable) -> None:
    """Check that the files of a table can be read from here, by PyIceberg."""
    try:
        there = files_of(table).new_input(table.metadata_location).exists()
    except ImportError as missing:
        raise NotSupported("files are read by PyIceberg: pip install 'txsaga[lake]'") from missing
    except (OSError, ValueError) as failure:
        raise NotSupported(f"{table.metadata_location} can't be read from here: {failure}") from failure
    if not there:
        raise NotSupported(f"{table.metadata_location} is not there, seen from here")
    if table.metadata["format-version"] != 2:
        raise NotSupported(f"table {table.name} has format version {table.metadata['format-version']}, not 2")


def files_of(table: LoadedTable) -> Any:
    """Return PyIceberg's access to the files of a table."""
    from pyiceberg.io import load_file_io

    return load_file_io(dict(table.reply.body.get("config") or {}), table.metadata_location)


def append(space: KitNamespace, base: LoadedTable, n: int, owner: str = "") -> Json:
    """Write a data file of one row and its manifests, and return the change that appends it to a table."""
    number = random.getrandbits(62) | 1
    snapshot = {
        "snapshot-id": number,
        "sequence-number": int(base.metadata["last-sequence-number"]) + 1,
        "timestamp-ms": max(time.time_ns() // 1_000_000, int(base.metadata["last-updated-ms"])),
        "manifest-list": _written(base, number, n),
        "summary": {"operation": "append", "added-data-files": "1", "added-records": "1"},
        "schema-id": base.schema_id,
        **({} if base.snapshot_id is None else {"parent-snapshot-id": base.snapshot_id}),
    }
    required = {"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": base.snapshot_id}
    lead: Json = {"action": "set-snapshot-ref", "ref-name": MAIN, "type": "branch", "snapshot-id": number}
    added: Json = {"action": "add-snapshot", "snapshot": snapshot}
    updates = [added, lead, set_counter(n, owner)]
    # , "snapshot": snapshot}, lead, set_counter(n, owner)]
    return space.change(base.name, [same_table(base), required], updates)


def _written(base: LoadedTable, number: int, n: int) -> str:
    """Write the files of a snapshot, and return the location of its manifest list."""
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest, write_manifest_list
    from pyiceberg.table.metadata import TableMetadataUtil

    files, metadata = files_of(base), TableMetadataUtil.parse_obj(base.metadata)
    manifest, listed = (f"{metadata.location}/metadata/{kind}-{number}-{uuid4()}.avro" for kind in ("kit", "snap"))
    with write_manifest(2, metadata.spec(), metadata.schema(), files.new_output(manifest), number, "deflate") as writer:
        data = _data_file(files, f"{metadata.location}/data/kit-{number}.parquet", n)
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=data))
    sequence, output = int(base.metadata["last-sequence-number"]) + 1, files.new_output(listed)
    current = metadata.current_snapshot()
    with write_manifest_list(2, output, number, metadata.current_snapshot_id, sequence, "deflate") as lister:
        lister.add_manifests([writer.to_manifest_file(), *(current.manifests(files) if current else ())])
    return listed


def _data_file(files: Any, location: str, n: int) -> Any:
    import pyarrow as pa
    from pyarrow import parquet
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    column = pa.field("number", pa.int64(), metadata={"PARQUET:field_id": "1"})
    with files.new_output(location).create() as stream:
        parquet.write_table(pa.table({"number": [n]}, schema=pa.schema([column])), stream)
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=len(files.new_input(location)),
    )
    found.spec_id = 0
    return found


CASES: Sequence[Callable[[KitNamespace], str]] = (metadata_kept,)
