"""The processes of a data folder, from the operating system, because `postmaster.pid` lies.

After kill -9 or a container restart the pid in it may be a zombie's or another program's. A server
process is recognised by its name and its working directory. This module must not signal any other
process. Without /proc (macOS) it sees none and reports that; the life lock then decides alone.
"""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from txsaga.embedded.account import Account

# A postmaster that starts or ends has no pid file for some milliseconds; that is no orphan yet.
_GRACE = 0.3
PROC = Path("/proc")
_LIST = """
for process in /proc/[0-9]*; do
  read -r name < "$process/comm" && [ "$name" = postgres ] && [ "$process/cwd" -ef "$1" ] &&
    echo "${process##*/}"
done 2>/dev/null
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    """What `postmaster.pid` claims."""

    pid: int
    port: int | None
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """The server processes of one data folder; `visible` is False if they can't be seen."""

    visible: bool
    everyone: frozenset[int]
    postmaster: int | None
    port: int | None


def pid_file(data: Path) -> Path:
    """Return the path of the postmaster's pid file."""
    return data / "postmaster.pid"


def read_pid_file(data: Path) -> PidFile | None:
    """Read the pid file; return None if it is absent or unfinished."""
    try:
        lines = pid_file(data).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit():
        return None
    port = lines[3].strip() if len(lines) > 3 else ""
    ready = len(lines) > 7 and lines[7].strip() == "ready"
    return PidFile(pid=int(lines[0]), port=int(port) if port.isdigit() else None, ready=ready)


def can_look() -> bool:
    """Return whether this system shows where processes work."""
    return (PROC / "self" / "cwd").exists()


def working_in(data: Path, account: Account) -> Processes:
    """List the server processes whose working directory is `data`."""
    claim = read_pid_file(data)
    visible = can_look()
    everyone = _list(data, account) if visible else frozenset[int]()
    present = claim is not None and (claim.pid in everyone if visible else _exists(claim.pid))
    return Processes(
        visible=visible,
        everyone=everyone,
        postmaster=claim.pid if claim and present else None,
        port=claim.port if claim and present else None,
    )


@dataclass(slots=True, kw_only=True)
class OrphanWatch:
    """Ends backends whose postmaster is dead: a busy one would run on for minutes."""

    data: Path
    account: Account
    _since: float | None = field(default=None, init=False)

    def look(self) -> Processes:
        """List the processes, and end those that have had no postmaster for a while."""
        found = working_in(self.data, self.account)
        if found.postmaster is not None or not found.everyone:
            self._since = None
            return found
        self._since = self._since or time.monotonic()
        if time.monotonic() - self._since > _GRACE:
            for pid in found.everyone:
                tell(pid, signal.SIGQUIT)
        return found


def tell(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _list(data: Path, account: Account) -> frozenset[int]:
    # As the account: in a container root may not inspect the processes of others.
    listing = account.run("sh", "-c", _LIST, "sh", data, cwd=Path("/")).stdout
    return frozenset(int(word) for word in listing.split() if word.isdigit())


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
