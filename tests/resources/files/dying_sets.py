"""
A program that dies at each line of its work with sets of part files, and what readers and heirs make of it.

A reader that asks for complete sets sees all of a dead writer's files or none, before anybody recovered. It prints how
many lines each kind of work has; what does not agree ends it with an assertion.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa

from tests.resources.files.dying import dying_at, opened
from txsaga import Folder
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId, Finish
from txsaga.testing.participant_contract import new_branch

ROWS = pa.table({"id": [1, 2, 3], "half": [0, 1, 2]})
FILES = 3


def vote(root: Path, branch: BranchId) -> None:
    enlisted = opened(root).enlist(branch)
    enlisted.handle.append("daily", ROWS, partitions=["half"])
    enlisted.prepare()()
    enlisted.leave()


def fresh(root: Path) -> BranchId:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    opened(root)
    return new_branch()


def complete(root: Path) -> int:
    found = len(Folder(root).files("daily"))
    assert found in (0, FILES)
    return found


def require(root: Path, branch: BranchId, decision: Decision) -> None:
    """Finish as an heir does, and look at the directory as anybody does."""
    complete(root)
    assert opened(root).finish(branch, decision) is Finish.DONE
    wanted = FILES if decision is Decision.COMMIT else 0
    assert complete(root) == len(list(root.glob("daily/*/*.parquet"))) == wanted
    assert not list((root / ".txsaga").glob(f"*/{branch.qualifier}"))


def voting(root: Path, line: int) -> bool:
    """Die while staging and voting."""
    branch = fresh(root)
    died = dying_at(line, lambda: vote(root, branch))
    assert complete(root) == 0
    voted = list(opened(root).prepared(branch.store)) == [branch]
    require(root, branch, Decision.COMMIT if voted else Decision.ROLLBACK)
    return died


def finishing(root: Path, line: int, decision: Decision) -> bool:
    """Die in the second phase."""
    branch = fresh(root)
    dying_at(10**9, lambda: vote(root, branch))  # in a child: Arrow's threads are not forked
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
