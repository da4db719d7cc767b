"""What a person is told to look at where a branch stands against its decision. If it is not told, nothing changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txsaga.cli.printing import say
from txsaga.model.branch import BranchState

FOUND = {
    BranchState.HEURISTIC_ROLLED_BACK: "what branch {gid} wrote is not in resource {resource!r}: do it by hand there",
    BranchState.HEURISTIC_COMMITTED: "what branch {gid} wrote stands in resource {resource!r}: undo it by hand there",
    BranchState.HEURISTIC_MIXED: "a part of what branch {gid} wrote stands in resource {resource!r}: look which there",
    BranchState.HEURISTIC_HAZARD: "look what became of branch {gid} in resource {resource!r}: nobody else can tell",
}


def look(said: Mapping[str, object]) -> str:
    """Tell what to look at, of a heuristic as it is written for programs."""
    return FOUND[BranchState(str(said["state"]))].format(gid=said["gid"], resource=said["resource"])


def say_looks(rows: Sequence[Mapping[str, object]]) -> None:
    """Print a line for each heuristic, and what comes behind all of them."""
    for row in rows:
        say(f"{row['branch']}: {row['look']}")
    if rows:
        say("then `txsaga forget ID BRANCH --reason WHY`; `txsaga tx show ID` tells what was decided")
