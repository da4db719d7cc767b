"""Binaries in places of a test's own."""

import shutil
from pathlib import Path

from txsaga.embedded.binaries import find_binaries


def copy_of_the_binaries(target: Path) -> Path:
    """Copy the binaries and their libraries, same relative places, and return their folder."""
    found = find_binaries(wanted=None, major=None).folder
    package = found.parents[1]
    inside = target / package.name / found.parent.name
    shutil.copytree(found.parent, inside, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    return inside / "bin"
