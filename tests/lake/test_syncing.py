"""Files are synced by threads that stay: a forked child has none of them, and starts its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from txsaga.lake.storage import Storage


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_syncs_files_too(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"1")
    storage = Storage({})
    storage.keep(map(str, paths))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        storage.keep(map(str, paths))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
