"""
Directories of Parquet in a folder, for a reader: only sets of files that are complete.

A directory can't take many files at one moment. So the files of a set get their names one after the other, and the
moment at which the set counts is one rename, that of its manifest to its marker: what a standing manifest still names
is left out here. Whoever lists the directory by himself may see a part of a set for some milliseconds, or until
recovery has ended what a dead process began. It only looks; nothing waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from txsaga.adapters.files import manifest
from txsaga.adapters.files.layout import DONE, MANIFEST, Layout
from txsaga.errors import StoreUnavailable

TRIES = 1000
"""Sets may come to their end while a directory is listed; then it is listed again."""
SUFFIX = ".parquet"


def complete(layout: Layout, directory: str) -> list[Path]:
    """Return the files of a directory without those of sets that are not all in their places."""
    for _ in range(TRIES):
        with suppress(FileNotFoundError):  # a set came to its end while it was looked at
            before = _ends(layout)
            unfinished = _unfinished(layout)
            found = [path for path in files_below(layout.target(directory)) if not _is_of(unfinished, layout, path)]
            if _ends(layout) == before:
                return found
    raise StoreUnavailable(f"sets of files came to {layout.root} all the while it was listed; list it again")


def _ends(layout: Layout) -> set[str]:
    """Return which sets are voted for, and which are complete: what changes meanwhile may have been half seen."""
    return {str(path) for pattern in (f"*/*/{MANIFEST}", f"*/*{DONE}") for path in layout.own.glob(pattern)}


def _unfinished(layout: Layout) -> dict[str, int]:
    found = [manifest.read(layout.manifest(branch)) for branch in layout.prepared("*")]
    return {each.target: each.number for entries in found for each in entries or ()}


def _is_of(unfinished: dict[str, int], layout: Layout, path: Path) -> bool:
    """Tell whether a file was named by a set that is not complete; one that it will replace stays until it is."""
    number = unfinished.get(str(path.relative_to(layout.root)))
    there = None if number is None else manifest.stamp(path)
    return there is not None and there[0] == number


def files_below(directory: Path) -> Iterator[Path]:
    """Yield the Parquet files of a directory as engines see them: names that begin with '_' or '.' are hidden."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(each for each in folders if each[0] not in "_.")
        yield from (Path(folder, each) for each in sorted(names) if each[0] not in "_." and each.endswith(SUFFIX))
