"""The operating-system account that runs the server.

PostgreSQL refuses to run as root, so root runs it as an existing account; every other user runs it as
themselves. This module must not create accounts, nor change a folder that the account does not own.
"""

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from txsaga.embedded.error_messages import complaint

_CANDIDATES = ("txsaga", "postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account and the means to act as it; `group` is None if it is the caller's own."""

    name: str
    user: int
    group: int | None = None

    @property
    def is_lent(self) -> bool:
        """Return whether root acts as another account."""
        return self.group is not None

    @property
    def home_mode(self) -> int:
        """Return the mode of a new home: a lent account must pass through a folder of root."""
        return 0o711 if self.is_lent else 0o700

    def run(
        self, *command: str | Path, cwd: Path, text: str = "", keep: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` as this account and return its output, for any exit code."""
        try:
            return subprocess.run(
                [os.fspath(word) for word in command],
                cwd=cwd, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                encoding="utf-8", errors="replace", env=_environment(), umask=0o077, pass_fds=keep,
                user=self.user if self.is_lent else None, group=self.group,
                extra_groups=[] if self.is_lent else None, check=False,
            )  # fmt: skip
        except OSError as error:
            raise complaint(
                f"can't run {command[0]} as account {self.name} ({error.strerror}); "
                "set TXSAGA_PG_BIN or TXSAGA_PG_USER to one that works"
            ) from error

    def give(self, path: Path) -> Path:
        """Make this account the owner of `path`."""
        if self.group is not None:
            os.chown(path, self.user, self.group)
        return path

    def reaches(self, path: Path) -> bool:
        """Return whether this account can enter, or run, `path`."""
        if not self.is_lent:
            return os.access(path, os.X_OK)
        return self.run("test", "-x", path, cwd=Path("/")).returncode == 0


def home_of_the_caller() -> Path:
    """Return the home folder of the caller's account."""
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        raise complaint("this account has no home folder: set TXSAGA_PG_HOME to a folder that only it uses") from None


def server_account(*, wanted: str | None, data: Path) -> Account:
    """Choose the account: the caller's own, or for root the wanted one, the data's owner, a known one."""
    if os.geteuid() != 0:
        return Account(name=_name_of(os.geteuid()), user=os.geteuid())
    if wanted:
        return _named(wanted)
    if data.exists():
        return _owner_of(data)
    for name in _CANDIDATES:
        if _exists(name):
            return _named(name)
    raise complaint(
        "PostgreSQL refuses to run as root and there is no account for it: create one (useradd --system txsaga) or "
        "set TXSAGA_PG_USER"
    )


def _owner_of(data: Path) -> Account:
    # Any owner, root included: a stop or a reset must work on any folder; a start refuses root.
    found = data.stat()
    return Account(name=_name_of(found.st_uid), user=found.st_uid, group=found.st_gid)


def _named(name: str) -> Account:
    if not _exists(name):
        raise complaint(f"account {name!r} does not exist: create it, or set TXSAGA_PG_USER to another")
    entry = pwd.getpwnam(name)
    if entry.pw_uid == 0:
        raise complaint(f"PostgreSQL refuses to run as {name!r}: name an ordinary account in TXSAGA_PG_USER")
    return Account(name=name, user=entry.pw_uid, group=entry.pw_gid)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _environment() -> dict[str, str]:
    # The user's PG* variables are meant for other servers. Messages are matched, so they must be English.
    # The server is not part of an Airflow that happens to start it, and must not end with it.
    others = ("PG", "LC_", "LANG", "TXSAGA_HOST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return {**kept, "LC_ALL": "C"}
