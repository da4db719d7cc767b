"""Work in a thread beside."""

from __future__ import annotations

import subprocess
import sys
from threading import Event, current_thread

import pytest

from txsaga.resources.mysql_branch import start


def test_what_is_begun_goes_on_side_by_side() -> None:
    here, there = Event(), Event()

    def meet(mine: Event, other: Event) -> bool:
        mine.set()
        return other.wait(10)

    first, second = start(lambda: meet(here, there)), start(lambda: meet(there, here))
    assert first.result(10)
    assert second.result(10)


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        start(lambda: 1 / 0).result(10)


def test_a_thread_that_is_done_takes_more() -> None:
    threads = {start(current_thread).result(10) for _ in range(50)}
    assert len(threads) < 50


FORKS = """
import os
from txsaga.resources.mysql_branch import start
start(lambda: None).result(10)
child = os.fork()
if child == 0:
    os._exit(start(lambda: 7).result(10))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_begins_its_own() -> None:
    assert subprocess.run([sys.executable, "-c", FORKS], timeout=60, check=False).returncode == 7
