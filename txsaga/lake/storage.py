"""
Files of tables: in local folders, or in object stores by PyIceberg's FileIO.

Before a pointer may lead to a file, `keep` syncs it to disk. If a local file were only in the system's cache, a power
failure could leave a table without its metadata.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyiceberg.io import FileIO, load_file_io

from txsaga.errors import WarehouseAway

SYNCS = 8
COMPRESSED = ".gz.metadata.json"


class Storage:
    """Reads and writes files by their locations."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)

    def io(self, location: str) -> FileIO:
        """Return the PyIceberg FileIO of a location."""
        return load_file_io(self.properties, location)

    def read(self, location: str) -> bytes:
        """Read a whole file."""
        try:
            if (path := local(location)) is not None:
                data = path.read_bytes()
            else:
                with self.io(location).new_input(location).open() as stream:
                    data = stream.read()
        except OSError as error:
            raise WarehouseAway(f"{location} can't be read: {error}; retry when its storage is back") from error
        return gzip.decompress(data) if location.endswith(COMPRESSED) else data

    def write(self, location: str, data: bytes) -> None:
        """Write a new file; `keep` makes it durable."""
        try:
            path = local(location)
            if path is None:
                with self.io(location).new_output(location).create() as stream:
                    stream.write(data)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(data)
        except OSError as error:
            raise WarehouseAway(f"{location} can't be written: {error}; retry when there is room") from error

    def keep(self, locations: Iterable[str]) -> None:
        """Sync local files and their folders; an object store has stored what it acknowledged."""
        paths = [path for location in locations if (path := local(location)) is not None]
        if not paths:
            return
        with ThreadPoolExecutor(SYNCS) as pool:  # the disk merges concurrent syncs
            for wave in (paths, sorted({path.parent for path in paths})):
                list(pool.map(_sync, wave))

    def remove(self, location: str) -> None:
        """Delete a file; a missing one is no error."""
        try:
            self.io(location).delete(location)
        except FileNotFoundError:
            return
        except OSError as error:
            raise WarehouseAway(f"{location} can't be deleted: {error}; retry") from error


def local(location: str) -> Path | None:
    """Return the path of a local location; None for an object store."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Path(location)
    if scheme != "file":
        return None
    return Path("/" + rest.lstrip("/"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
