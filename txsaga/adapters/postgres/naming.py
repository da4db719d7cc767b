"""Naming the branches of a locked life, and electing those that voted; whoever opened the block commits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sqlalchemy import Connection, func, insert, select, update

from txsaga.adapters.postgres import schema
from txsaga.adapters.postgres.connection import translating
from txsaga.model.branch import BRANCH, HEURISTIC, NOTHING_DONE, BranchEvent, BranchState, Vote
from txsaga.model.records import Life
from txsaga.ports.branches import VOTED, Voted

branch = schema.branch
STANDING = [state.value for state in HEURISTIC]
OPEN = [state.value for state in BRANCH.sources(BranchEvent.ROLL_BACK)]


def name(connection: Connection, life: Life, resources: Sequence[int], *, aux: bool) -> Sequence[int]:
    """Name a branch for each resource; one that was named in an attempt before keeps its number."""
    query = select(branch.c.resource, branch.c.number, branch.c.attempt, branch.c.aux)
    with translating():
        known = connection.execute(query.where(branch.c.txid == life.txid)).all()
        fresh = count(max((row.number for row in known), default=0) + 1)
        numbers = {} if aux else {row.resource: row.number for row in known if not row.aux}
        named = {row.number for row in known if row.attempt == life.owner}
        for resource in resources:
            if resource not in numbers:
                numbers[resource] = next(fresh)
        common = {"txid": life.txid, "attempt": life.owner, "state": BranchState.ACTIVE.value, "aux": aux}
        values = [
            {**common, "number": numbers[resource], "resource": resource}
            for resource in resources
            if numbers[resource] not in named
        ]
        if values:
            connection.execute(insert(branch), values)
    return [numbers[resource] for resource in resources]


def elect(connection: Connection, txid: int, votes: Sequence[Voted]) -> None:
    """Note what branches voted."""
    with translating():
        for vote in votes:
            same = (branch.c.txid == txid, branch.c.number == vote.number, branch.c.attempt == vote.attempt)
            voted = {"state": VOTED[vote.vote].value, "why": NOTHING_DONE if vote.vote is Vote.READ_ONLY else None}
            connection.execute(update(branch).where(*same, branch.c.state.in_(OPEN)).values(voted))


def forget(connection: Connection, txid: int, number: int, attempt: int) -> bool:
    """Forget a branch that stands against its decision."""
    same = (branch.c.txid == txid, branch.c.number == number, branch.c.attempt == attempt)
    statement = update(branch).where(*same, branch.c.state.in_(STANDING))
    with translating():
        forgotten = statement.values(state=BranchState.FORGOTTEN.value, at=func.clock_timestamp())
        return connection.execute(forgotten).rowcount == 1
