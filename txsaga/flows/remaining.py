"""
Find what is left of a flow's held work after ROLLBACK: only what its lane has committed on its own.

It is asked before a compensation runs. A lane's commit may not have reached its resource: it is finished first, or a
compensation would look for rows that appear later. If "nothing" were returned for such work, it would never be undone.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.kernel import Kernel
from txsaga.flows.branch import BranchId, Finish
from txsaga.flows.step import Left
from txsaga.flows.step_records import FlowStep, FlowUnit, lane_unit, last_attempts
from txsaga.resources.participant import Participant

LEFT = {Finish.ROLLED_BACK: Left.NOTHING, Finish.HAZARD: Left.UNKNOWN}


def left_of(kernel: Kernel, txid: int, number: int) -> Left:
    """Return what a step's held work has left in its resource."""
    with kernel.store.ledgers.open() as ledger:
        steps, units = ledger.flows.steps(txid), ledger.flows.units(txid)
    unit = lane_unit(steps, units, number)
    if unit is None or unit.decision is Decision.ROLLBACK:
        return Left.NOTHING
    participant = kernel.reach(unit.resource)
    if unit.decision is Decision.COMMIT:
        return (
            _told(kernel, txid, participant, steps, unit, number) if participant.capabilities.two_phase else Left.WORK
        )
    if unit.branch is None or participant.capabilities.two_phase:
        return Left.NOTHING
    return _committed_unheard(kernel, txid, participant, unit)


def _told(
    kernel: Kernel, txid: int, participant: Participant, steps: Sequence[FlowStep], unit: FlowUnit, number: int
) -> Left:
    """Commit in the resource what its lane committed; a branch rolled back there by hand has left nothing."""
    found: dict[BranchId, Finish] = {}
    for branch in _branches(kernel, txid, steps, unit):
        with kernel.announce.around(facts.Finishing, txid, about=participant.name):
            found[branch] = participant.finish(branch, Decision.COMMIT)
    (step,) = [each for each in last_attempts(steps) if each.number == number]
    place = (step.branch, step.attempt) if step.holds_locks else (unit.branch, unit.attempt)
    mine = [finish for branch, finish in found.items() if (branch.number, branch.attempt) == place]
    return LEFT.get(mine[0], Left.WORK) if mine else Left.WORK


def _branches(kernel: Kernel, txid: int, steps: Sequence[FlowStep], unit: FlowUnit) -> list[BranchId]:
    """Return the branches that the unit's decision committed: those of its steps, and the journal's last run."""
    transaction = kernel.store.registry.identity.transaction(txid)
    held = [step for step in last_attempts(steps) if step.holds_locks and step.lane]
    found = [(step.branch or 0, step.attempt) for step in held if (step.resource, step.unit) == unit[:2]]
    if unit.branch is not None:
        found.append((unit.branch, unit.attempt))
    return [BranchId(transaction, *each) for each in found]


def _committed_unheard(kernel: Kernel, txid: int, participant: Participant, unit: FlowUnit) -> Left:
    """Find a one-phase commit whose answer was lost, and fence one that is late."""
    transaction, found = kernel.store.registry.identity.transaction(txid), Left.NOTHING
    for attempt in range(1, unit.attempt + 1):
        with kernel.announce.around(facts.Fencing, txid, about=participant.name):
            if participant.fence(BranchId(transaction, unit.branch or 0, attempt)) is Finish.COMMITTED:
                found = Left.WORK
    return found
