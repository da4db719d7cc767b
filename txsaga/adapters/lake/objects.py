"""
What lies below a place in an object store, which has no folders: only names that begin alike.

If something were listed that is not below the place, a collector could take what is another's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

from txsaga.adapters.lake.storage import Storage
from txsaga.errors.lake import WarehouseAway


def below(storage: Storage, location: str) -> list[str]:
    """Return the locations of all objects below a place, at any depth."""
    return [name for name, info in _listed(storage, location, deep=True) if info.type == FileType.File]


def folders(storage: Storage, location: str) -> list[str]:
    """Return the places directly below a place."""
    return [name for name, info in _listed(storage, location, deep=False) if info.type == FileType.Directory]


def _listed(storage: Storage, location: str, *, deep: bool) -> Iterator[tuple[str, FileInfo]]:
    io = storage.io(location)
    if not isinstance(io, PyArrowFileIO):
        raise WarehouseAway(
            f"{location} can't be listed by {type(io).__name__}; let PyIceberg use PyArrowFileIO for it"
        )
    scheme, netloc, path = io.parse_location(location, io.properties)
    root = location.removesuffix(path.removeprefix(netloc))
    with _told(location):
        selector = FileSelector(path.rstrip("/"), recursive=deep, allow_not_found=True)
        found = io.fs_by_scheme(scheme, netloc).get_file_info(selector)
    for each in sorted(found, key=lambda info: str(info.path)):
        yield f"{root}{each.path.removeprefix(netloc)}", each


@contextmanager
def _told(location: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarehouseAway(f"{location} can't be listed: {error}; retry when its storage is back") from error
