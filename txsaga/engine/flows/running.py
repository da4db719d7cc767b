"""
Doing a journal in one branch, with an eye on it: its rows may be locked by what other steps of the flow prepared.

It commits nothing. If it never runs, the statements stay where they are, and the flow or the lane is not settled.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.engine.flows.watching import Watch
from txsaga.errors import ConfigError
from txsaga.errors.flows import OwnLock
from txsaga.model.branch import BranchId
from txsaga.model.flow_step import FlowStep, Journalled
from txsaga.ports.flows import Journals, Waiting
from txsaga.ports.participants import Enlisted, Participant


def do_journal(
    participant: Participant,
    session: Enlisted,
    branch: BranchId,
    statements: Sequence[Journalled],
    held: Sequence[FlowStep],
) -> None:
    """Do statements in an open branch; `held` are the steps of the flow that are held prepared there."""
    if not isinstance(participant, Journals):
        raise ConfigError(f"{participant.name!r} takes no statements; its journal can't be done")
    waits = (
        participant.waits(session, branch, [step.mark for step in held]) if isinstance(participant, Waiting) else None
    )
    with Watch(waits) as watch:
        try:
            participant.do(session, statements)
        except Exception as error:
            if watch.found is None:
                raise
            raise _own_lock(participant.name, watch.found, held, branch.transaction) from error


def _own_lock(resource: str, holder: str, held: Sequence[FlowStep], transaction: str) -> OwnLock:
    for step in held:
        if holder in (step.mark, BranchId(transaction, step.branch or 0, step.attempt).gid):
            holder = f"step {step.name!r}"
    return OwnLock("the journal", resource, holder)
