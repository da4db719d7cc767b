"""What a run depends on: the machine, the versions, the day. It names no host."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psycopg

from tests.bench.home import Home

MODEL = re.compile(r"^model name\s*: (.+)$", re.MULTILINE)


def conditions(home: Home, command: str, packages: Iterable[str]) -> dict[str, str]:
    """Describe a run."""
    with psycopg.connect(home.url(driver=None)) as connection:
        server = connection.info.parameter_status("server_version")
    versions = {"PostgreSQL": server, "Python": platform.python_version()}
    versions |= {each: version(each) for each in ("txsaga", *packages)}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "machine": f"{_model()}, {os.cpu_count()} cores, {_gib()} GiB, {_kernel()}",
        "versions": ", ".join(f"{name} {found}" for name, found in versions.items()),
    }


def version(package: str) -> str | None:
    """Return the version of a package that is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _model() -> str:
    info = Path("/proc/cpuinfo")
    found = MODEL.search(info.read_text()) if info.exists() else None
    return found[1] if found else platform.machine()


def _gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _kernel() -> str:
    """Name the kernel by its numbers alone: what follows them is a builder's or a host's."""
    return f"{platform.system()} {re.match(r'[0-9.]*', platform.release())[0]}"  # type: ignore[index]  # it matches
