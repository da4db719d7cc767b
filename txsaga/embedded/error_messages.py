"""Turn any failure into one line that says what to do.

This module must not hide a cause: the original exception stays chained, and a line that quotes PostgreSQL
names the log. It decides nothing: whether to try again is decided where the server is started.
"""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from txsaga.errors import EmbeddedDatabaseError

_DISK_FULL = re.compile(r"No space left on device|[Dd]isk quota exceeded")
_SERIOUS = re.compile(r"(?:FATAL|PANIC|ERROR|error): +(.+)")
_NEARLY_NOTHING = 256 * 1024


def complaint(text: str, kind: type[EmbeddedDatabaseError] = EmbeddedDatabaseError) -> EmbeddedDatabaseError:
    """Build the error with its text on a single line."""
    return kind(" ".join(text.split()))


@contextmanager
def explained(root: Path) -> Iterator[None]:
    """Replace errors of the system and of the driver with one line about the home at `root`."""
    try:
        yield
    except OSError as error:
        raise _explain(error, root) from error
    except psycopg.OperationalError as error:
        if "FATAL:" not in str(error):
            raise complaint(f"the embedded PostgreSQL at {root} does not answer: `txsaga db start`") from error
        raise complaint(f"the embedded PostgreSQL at {root} answered: {serious_line(str(error))}") from error
    except psycopg.Error as error:
        raise complaint(f"the embedded PostgreSQL at {root} answered: {error}") from error


def serious_line(output: str) -> str:
    """Pick the last line of `output` that names a failure, else its last line."""
    found: list[str] = _SERIOUS.findall(output)
    lines = output.strip().splitlines()
    return found[-1] if found else lines[-1] if lines else "no message"


def disk_full(folder: Path, output: str) -> bool:
    """Return whether `output` reports a full disk, or is silent because even the log could not grow."""
    if _DISK_FULL.search(output):
        return True
    return not _SERIOUS.search(output) and shutil.disk_usage(folder).free < _NEARLY_NOTHING


def disk_full_complaint(root: Path) -> EmbeddedDatabaseError:
    """Build the error about a full disk."""
    return complaint(f"the disk below {root} is full: free some space and start again, no data was changed")


def _explain(error: OSError, root: Path) -> EmbeddedDatabaseError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full_complaint(root)
    place = error.filename or root
    match error:
        case PermissionError():
            advice = "it belongs to another account: set TXSAGA_PG_HOME to a folder of your own"
        case FileExistsError() | NotADirectoryError():
            advice = "a file is in the way: set TXSAGA_PG_HOME to a folder"
        case _:
            advice = "repair that, or set TXSAGA_PG_HOME to another folder"
    return complaint(f"the embedded PostgreSQL can't use {place} ({error.strerror or error}); {advice}")
