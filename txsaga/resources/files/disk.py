"""Writes that survive a crash of the machine: a name is durable once its folder is synced."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    sync_folder(path.parent)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, replacing an existing one."""
    draft = path.with_name(f"{path.name}.draft.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file durably; a missing one is no error."""
    with suppress(FileNotFoundError):
        path.unlink()
        sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with its contents; then its parent, if that is empty."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
    with suppress(OSError):
        path.parent.rmdir()
