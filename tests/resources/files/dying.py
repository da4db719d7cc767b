"""
A program that dies at each line of its work in a folder, one child per line, and what its heirs make of it.

It prints how many lines each kind of work has; what does not agree ends it with an assertion.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Protocol

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId, Finish
from txsaga.resources.files import folder
from txsaga.resources.files.folder import FolderParticipant
from txsaga.testing.participant_contract import new_branch

HERE = str(Path(folder.__file__).parent)
DEAD, ALIVE = 9, 0
OLD, NEW = b"old", b"new"


class Tracer(Protocol):
    """What follows the lines of a frame."""

    def __call__(self, frame: FrameType, event: str, arg: object, /) -> Tracer | None: ...


def dying_at(line: int, work: Callable[[], object]) -> bool:
    """Do work in a child that dies at its n-th line; tell whether it died."""
    child = os.fork()
    if child == 0:
        left = [line]

        def trace(frame: FrameType, event: str, _: object) -> Tracer | None:
            if not frame.f_code.co_filename.startswith(HERE):
                return None
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    os._exit(DEAD)
            return trace

        threading.settrace(trace)
        sys.settrace(trace)
        try:
            work()
            os._exit(ALIVE)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (DEAD, ALIVE), f"the child ended with {status}"
    return status == DEAD


def opened(root: Path) -> FolderParticipant:
    participant = FolderParticipant(root, name="reports")
    _ = participant.database
    return participant


def vote(root: Path, branch: BranchId) -> None:
    enlisted = opened(root).enlist(branch)
    enlisted.handle.write("new", NEW)
    enlisted.handle.write("deep/er", NEW)
    enlisted.handle.write("old", NEW, "wb")
    enlisted.prepare()()
    enlisted.leave()


def fresh(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    (root / "old").write_bytes(OLD)
    opened(root)


def require(root: Path, branch: BranchId, decision: Decision, finish: Finish = Finish.DONE) -> None:
    """Finish as an heir does, and hold everything against the decision."""
    assert opened(root).finish(branch, decision) is finish
    committed = decision is Decision.COMMIT
    assert (root / "old").read_bytes() == (NEW if committed else OLD)
    for name in ("new", "deep/er"):
        assert (root / name).exists() == committed
        assert not committed or (root / name).read_bytes() == NEW
    assert not list((root / ".txsaga" / "taken").glob("*"))
    assert not list((root / ".txsaga").glob(f"*/{branch.qualifier}"))
    assert not opened(root).prepared(branch.store)
    assert opened(root).finish(branch, decision) is Finish.DONE


def voting(root: Path, line: int) -> bool:
    """Die while voting; whoever comes commits what was promised, and nothing else."""
    fresh(root)
    branch = new_branch()
    died = dying_at(line, lambda: vote(root, branch))
    voted = list(opened(root).prepared(branch.store)) == [branch]
    require(root, branch, Decision.COMMIT if voted else Decision.ROLLBACK)
    return died


def finishing(root: Path, line: int, decision: Decision) -> bool:
    """Die in the second phase; whoever comes ends it."""
    fresh(root)
    branch = new_branch()
    vote(root, branch)
    died = dying_at(line, lambda: opened(root).finish(branch, decision))
    require(root, branch, decision)
    return died


def main(root: Path, first: int, stride: int) -> None:
    """Die at every so many lines."""
    works: list[Callable[[Path, int], bool]] = [voting]
    works += [partial(finishing, decision=decision) for decision in Decision]
    for work in works:
        print(next(line for line in count(first, stride) if not work(root, line)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
