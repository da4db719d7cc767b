"""
Metadata files of tables and views: read once, since a file never changes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

from txsaga.catalog.refusals import CatalogRefusal, bad
from txsaga.errors import InDoubt, OutcomeUnknown, WarehouseAway
from txsaga.lake.storage import Storage, local

KEPT = 64 * 1024 * 1024
"""Bytes of metadata that are kept in memory."""


class MetadataFile(NamedTuple):
    """A metadata file, as stored and as JSON."""

    location: str
    text: bytes
    raw: dict[str, Any]

    def only_refs(self) -> MetadataFile:
        """Return it with the snapshots that a branch or tag names."""
        named = {each["snapshot-id"] for each in self.raw.get("refs", {}).values()}
        kept = [each for each in self.raw.get("snapshots", []) if each["snapshot-id"] in named]
        raw = {**self.raw, "snapshots": kept}
        return self._replace(text=json.dumps(raw).encode(), raw=raw)


class MetadataFiles:
    """Reads and writes metadata files; those that were read last are kept."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self._lock, self._size = storage, Lock(), 0
        self._kept = OrderedDict[str, MetadataFile]()

    def read(self, location: str) -> MetadataFile:
        """Return the file at a location."""
        with self._lock:
            if location in self._kept and _is_there(location):
                self._kept.move_to_end(location)
                return self._kept[location]
        try:
            text = self._storage.read(location)
        except ValueError as wrong:
            raise bad(f"{location} can't be read: {wrong}") from None
        except WarehouseAway as away:
            if isinstance(away.__cause__, FileNotFoundError):
                raise CatalogRefusal(
                    404, "NotFoundException", f"Failed to open input stream for file: {location}"
                ) from None
            raise
        try:
            raw = json.loads(text)
        except ValueError:
            raw = None
        if not _is_metadata(raw):
            raise bad(f"{location} holds no metadata")
        return self._keep(MetadataFile(location, text, raw))

    def of(self, kind: str, location: str) -> MetadataFile:
        """Return the file at a location, which is that of a table or that of a view."""
        file = self.read(location)
        if f"{kind}-uuid" not in file.raw:
            raise bad(f"{location} holds no metadata of a {kind}")
        return file

    def write(self, location: str, raw: dict[str, Any]) -> MetadataFile:
        """Write a new file, and make it durable."""
        try:
            text = json.dumps(raw, separators=(",", ":"), allow_nan=False).encode()
        except ValueError as wrong:
            raise bad(f"the metadata can't be stored as JSON: {wrong}") from None
        self._storage.write(location, text)
        self._storage.keep([location])
        return self._keep(MetadataFile(location, text, raw))

    @contextmanager
    def of_one_commit(self) -> Iterator[list[str]]:
        """Give a list for new files, which are removed if their commit is refused; its outcome may also be unknown."""
        created: list[str] = []
        try:
            yield created
        except (OutcomeUnknown, InDoubt):
            raise
        except Exception:
            self.remove(*created)
            raise

    def remove(self, *locations: str) -> None:
        """Delete files that nothing leads to."""
        for location in locations:
            self._storage.remove(location)

    def _keep(self, file: MetadataFile) -> MetadataFile:
        with self._lock:
            if file.location not in self._kept and len(file.text) < KEPT:
                self._kept[file.location] = file
                self._size += len(file.text)
            while self._size > KEPT:
                _, oldest = self._kept.popitem(last=False)
                self._size -= len(oldest.text)
        return file


def _is_metadata(raw: Any) -> bool:
    """Return whether it may be the metadata of a table or view."""
    if not isinstance(raw, dict) or not isinstance(raw.get("properties") or {}, dict):
        return False
    texts = [raw.get("table-uuid", raw.get("view-uuid")), raw.get("location")]
    return all(isinstance(each, str) for each in texts)


def _is_there(location: str) -> bool:
    path = local(location)  # to ask an object store would take as long as to read from it
    return path is None or path.exists()


def metadata_location(raw: dict[str, Any], number: int) -> str:
    """Return a new location for metadata of a table or view."""
    said = raw.get("properties", {}).get("write.metadata.path")
    folder = said or f"{raw['location'].rstrip('/')}/metadata"
    return f"{folder.rstrip('/')}/{number:05d}-{uuid4()}.metadata.json"
