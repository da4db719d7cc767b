"""
A manifest: the files that a branch voted for, and what it found at their places.

While it stands, its staged files stand: it is the yes. Its rename to the marker is the end of the commit. A target that
somebody changed since it was staged, or between vote and commit, is seen by its stamp.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import file_digest
from pathlib import Path
from typing import NamedTuple

Stamp = tuple[int, int, int] | None
"""Number, size and time of change of a file; None where there is none."""


class Entry(NamedTuple):
    """One staged file."""

    target: str
    staged: str
    size: int
    sha256: str
    number: int  # of the staged file itself: a target with it is the branch's own
    found: Stamp


def stamp(path: Path) -> Stamp:
    """Return what tells a file from what replaced it."""
    try:
        seen = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def entry(target: str, staged: Path, found: Stamp) -> Entry:
    """Sync a staged file and describe it."""
    with staged.open("rb") as file:
        os.fsync(file.fileno())
        digest = file_digest(file, "sha256").hexdigest()
        seen = os.fstat(file.fileno())
    return Entry(target, staged.name, seen.st_size, digest, seen.st_ino, found)


def written(entries: Sequence[Entry]) -> bytes:
    """Write a manifest down."""
    return json.dumps({"files": [each._asdict() for each in entries]}, indent=1).encode()


def read(path: Path) -> list[Entry] | None:
    """Read a manifest; None where there is none."""
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [Entry(**{**each, "found": each["found"] and tuple(each["found"])}) for each in json.loads(text)["files"]]
