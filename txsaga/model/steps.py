"""
The steps of one transaction, told from what is durable of it.

A step whose moment is kept nowhere says so by having none. Local work is told from the decision alone, unless
somebody looked at its evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txsaga.model.branch import NOTHING_DONE, Branch, BranchState
from txsaga.model.decision import Decision
from txsaga.model.flow_timeline import flow_steps
from txsaga.model.late import LATE_PART
from txsaga.model.lifecycle import TxState
from txsaga.model.overview import Audited
from txsaga.model.replay import REPLAY, REPLAYED
from txsaga.model.step import StepState
from txsaga.model.timeline import MAIN, Kind, Phase, Step, in_order
from txsaga.model.trace import Sent, Trace

CLOSED = (TxState.ENDED, TxState.PREPARED)
CHECK = "CHECK "
RECORDED = {
    "PARKED": "parked",
    "RESUMED": "resumed",
    REPLAY: "replays transaction {}",
    REPLAYED: "replayed as transaction {}",
}
FATES = {
    BranchState.COMMITTED: ("committed", Kind.FINAL),
    BranchState.ROLLED_BACK: ("rolled back", Kind.NONE),
    BranchState.HEURISTIC_COMMITTED: ("found committed by somebody else", Kind.FINAL),
    BranchState.HEURISTIC_ROLLED_BACK: ("found rolled back by somebody else", Kind.NONE),
    BranchState.HEURISTIC_MIXED: ("found half committed", Kind.FINAL),
    BranchState.HEURISTIC_HAZARD: ("found, and nobody can tell", Kind.HELD),
    BranchState.FORGOTTEN: ("forgotten", Kind.NONE),
}
"""How a branch ended, and whether its resource may still hold undo data of it."""
BECAME = {
    StepState.COMPENSATING: ("is to be undone", Kind.HELD),
    StepState.COMPENSATED: ("undone", Kind.NONE),
    StepState.COMPENSATION_FAILED: ("can't be undone", Kind.HELD),
    StepState.SKIPPED: ("skipped by hand", Kind.NONE),
}
"""What became of a step behind the decision, and whether anything of it is still to be undone."""
VOTED = (
    BranchState.COMMITTED,
    BranchState.HEURISTIC_ROLLED_BACK,
    BranchState.HEURISTIC_MIXED,
    BranchState.HEURISTIC_HAZARD,
)
"""What tells, of a transaction that commits, that a branch had voted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the evidence of local work said to somebody who looked, and fenced nothing."""

    committed: bool | None  # None: nothing is there, or nobody could answer
    why: str


def steps_of(trace: Trace, looked: Looked | None = None) -> list[Step]:
    """Return the steps of a transaction in order."""
    parts = (_opened, _taken_over, _stored, _branched, _stepped, _closed, _asked, _parked, _recorded, _decided, _given)
    told = (step for part in parts for step in part(trace))
    return in_order([*told, *flow_steps(trace), *_worked(trace, looked)])


def _opened(trace: Trace) -> Iterator[Step]:
    life = trace.life
    if life is None:
        return
    under = f"opened under key {life.key}, life {life.epoch}" if life.key is not None else "opened"
    yield Step(what=under, kind=Kind.CHANGE, phase=Phase.OPENED, at=life.opened)
    if trace.amends is not None:
        what = f"amends transaction {trace.amends}"
        yield Step(what=what, kind=Kind.HELD, phase=Phase.OPENED, at=life.opened)
    if trace.amended_as is not None:
        what = f"amended by transaction {trace.amended_as.txid}"
        yield Step(what=what, kind=Kind.NONE, phase=Phase.AFTER, at=trace.amended_as.at)
    if life.state is TxState.ACTIVE and life.touched > life.opened:
        who = "somebody" if life.flow else f"owner {life.owner}"
        yield Step(what=f"{who} was last seen", kind=Kind.HELD, phase=Phase.STORED, at=life.touched)


def _taken_over(trace: Trace) -> Iterator[Step]:
    for owner in range(2, trace.life.owner + 1 if trace.life else 0):
        before = min((sent.born for sent in trace.sent if sent.attempt >= owner), default=None)
        phase = Phase.OPENED if before else Phase.STORED
        what = f"end begun by owner {owner}" if trace.life and trace.life.flow else f"taken over by owner {owner}"
        yield Step(what=what, kind=Kind.CHANGE, phase=phase, before=before)


def _stored(trace: Trace) -> Iterator[Step]:
    for sent in trace.sent:
        late = trace.life is not None and sent.part == LATE_PART
        yield Step(
            what=_message(sent, late=late, superseded=_superseded(trace, sent)),
            kind=Kind.FINAL if late else Kind.CHANGE,
            phase=Phase.DECIDED if late else Phase.STORED,
            at=sent.born,
            who=f"owner {sent.attempt}" if trace.life else "",
        )
    for slot, place in trace.kept:
        what = f"place {slot} kept for a late body to {place}"
        yield Step(what=what, kind=Kind.CHANGE, phase=Phase.STORED)
    for group, member, place, first, last in trace.bound:
        what = f"{_offsets(first, last)} of {place} bound for group {group}"
        yield Step(what=what, kind=Kind.CHANGE, phase=Phase.STORED, who=member)


def _branched(trace: Trace) -> Iterator[Step]:
    """Tell each attempt of a branch in the lane of its resource: named, voted or left, and what became of it."""
    of_flow = {(step.branch, step.attempt) for step in trace.flow_steps}
    of_flow |= {(unit.branch, unit.attempt) for unit in trace.flow_units}
    for branch in trace.branches:
        tried = f", attempt {branch.attempt}" if branch.attempt > 1 else ""
        own = (branch.number, branch.attempt) in of_flow  # its step, or its unit, tells of it
        lane = f"{branch.resource} aux" if branch.aux else branch.resource
        what, fate = f"{'unit' if branch.aux and not own else 'branch'} {branch.number}", FATES.get(branch.state)
        at = branch.at if branch.state is BranchState.ACTIVE else None
        left = branch.state is BranchState.COMMITTED and branch.why == NOTHING_DONE
        if not own:
            kind = Kind.NONE if left else Kind.CHANGE
            yield Step(what=f"{what} named{tried}", kind=kind, phase=Phase.OPENED, lane=lane, at=at)
        if left:
            yield Step(what=f"{what} left: nothing to commit{tried}", kind=Kind.NONE, phase=Phase.WORKED, lane=lane)
            continue
        if not own and _has_voted(trace, branch):
            yield Step(what=f"{what} voted", kind=Kind.HELD, phase=Phase.WORKED, lane=lane)
        if fate:
            told, kind = fate
            phase = Phase.STORED if branch.aux else Phase.GIVEN
            yield Step(what=f"{what} {told}{tried}", kind=kind, phase=phase, lane=lane, at=branch.at, why=branch.why)


def _has_voted(trace: Trace, branch: Branch) -> bool:
    """Tell whether a branch was asked for its vote; the one whose commit is the decision never is."""
    if branch.aux or (trace.resource is not None and trace.resource.id == branch.recorded):
        return False
    return branch.state is BranchState.PREPARED or (trace.decision is Decision.COMMIT and branch.state in VOTED)


def _stepped(trace: Trace) -> Iterator[Step]:
    """Tell each step of a saga in the lane of its resource: that it began, and what became of it."""
    for step in trace.steps:
        what, lane = f"step {step.number} {step.name}", step.resource or MAIN
        phase = Phase.GIVEN if step.forward else Phase.STORED
        told, kind = BECAME.get(step.state, ("", Kind.CHANGE))
        at = step.at if not told else None
        fate = f" {step.state}" if step.state in (StepState.DONE, StepState.FAILED) else ""
        why = step.error if step.state is StepState.FAILED else ""
        first = Kind.FINAL if step.forward or step.compensation is None else Kind.CHANGE
        yield Step(what=f"{what}{fate or ' began'}", kind=first, phase=phase, lane=lane, at=at, why=why)
        if told:
            yield Step(what=f"{what} {told}", kind=kind, phase=Phase.AFTER, lane=lane, at=step.at, why=step.error)


def _closed(trace: Trace) -> Iterator[Step]:
    life = trace.life
    if life is None or life.state is TxState.ACTIVE:
        return
    if life.state is TxState.ROLLED_BACK and not any(sent.counts for sent in trace.sent):
        return  # whatever it was rolled back from, no end is known
    at = life.touched if life.state in CLOSED else None
    yield Step(what="closed by its owner", kind=Kind.HELD, phase=Phase.CLOSED, at=at)


def _worked(trace: Trace, looked: Looked | None) -> Iterator[Step]:
    if trace.resource is None:
        return
    lane = trace.resource.name
    committed, why = trace.decision is Decision.COMMIT, _found_out(trace)
    if looked is not None and looked.committed is not None:
        committed, why = looked.committed, looked.why
    elif looked is not None or trace.decision is None:
        why = looked.why if looked else "nobody looked whether it committed"
        yield Step(what="local work", kind=Kind.HELD, phase=Phase.WORKED, lane=lane, why=why)
        return
    kind, what = (Kind.FINAL, "local work committed") if committed else (Kind.NONE, "local work did not commit")
    yield Step(what=what, kind=kind, phase=Phase.WORKED, lane=lane, why=why)


def _found_out(trace: Trace) -> str:
    """Say how a decision knows of local work: check-back has looked at the evidence."""
    op, record = trace.op, _decided_by(trace)
    if op is not None and op.from_check and record is not None and record.what == op.decision.name:
        return record.why
    return "by the decision; nobody looked at the evidence"


def _asked(trace: Trace) -> Iterator[Step]:
    listed = trace.listed
    if trace.due is not None:
        yield Step(what="due", kind=Kind.HELD, phase=Phase.ASKED, at=trace.due)
    if listed is None:
        return
    for at, who, answer, why in listed.remarks:
        yield Step(what=f"check: {answer}", kind=Kind.HELD, phase=Phase.ASKED, at=at, who=who, why=why)
    if not listed.remarks:
        what = f"found undecided, {_count(listed.checks, 'check')} since"
        yield Step(what=what, kind=Kind.HELD, phase=Phase.ASKED)
    if listed.parked is None:
        yield Step(what="next check", kind=Kind.HELD, phase=Phase.PARKED, at=listed.due)


def _parked(trace: Trace) -> Iterator[Step]:
    """Tell of a parking that left no audit row."""
    why = _why_parked(trace)
    if why is not None and not any(each.what == "PARKED" for each in trace.audits):
        at = trace.life.touched if trace.life and trace.life.state is TxState.PARKED else None
        yield Step(what="parked", kind=Kind.HELD, phase=Phase.PARKED, at=at, why=why)


def _why_parked(trace: Trace) -> str | None:
    if trace.listed is not None and trace.listed.parked is not None:
        return trace.listed.parked
    return "" if trace.life and trace.life.state is TxState.PARKED else None


def _recorded(trace: Trace) -> Iterator[Step]:
    decided, other = _decided_by(trace), trace.replays or trace.replayed_as
    over = next((step.at or step.before for step in _decided(trace)), None)
    for each in trace.audits:
        if each.what.startswith(CHECK):
            what = f"check: {each.what.removeprefix(CHECK)}"
            yield Step(what=what, kind=Kind.HELD, phase=Phase.ASKED, at=each.at, who=each.who, why=each.why)
        elif each is not decided:
            after = over is not None and each.at > over
            kind, phase = (Kind.NONE, Phase.AFTER) if after or each.what == REPLAYED else (Kind.HELD, Phase.PARKED)
            what = RECORDED[each.what].format(other) if each.what in RECORDED else each.what
            yield Step(what=what, kind=kind, phase=phase, at=each.at, who=each.who, why=each.why)


def _decided(trace: Trace) -> Iterator[Step]:
    op = trace.op
    if op is None:
        return
    record, at = _decided_by(trace), None
    if record is not None:
        at = record.at
    elif trace.life is not None:
        at = trace.life.touched
    yield Step(
        what=_outcome(trace, op.decision, from_check=op.from_check),
        kind=Kind.NONE,
        phase=Phase.DECIDED,
        at=at,
        before=None if at else min([given.at for given in trace.given], default=op.before),
        who=record.who if record else "",
        why=record.why if record else "",
    )


def _decided_by(trace: Trace) -> Audited | None:
    """Return the audit row that was written with the decision."""
    op, by_hand = trace.op, " BY HAND"
    said = (each for each in reversed(trace.audits) if op and each.what.removesuffix(by_hand) == op.decision.name)
    return next(said, None)


def _given(trace: Trace) -> Iterator[Step]:
    for place, first, last, at in trace.given:
        what = f"{_offsets(first, last)} of {place} given out"
        yield Step(what=what, kind=Kind.NONE, phase=Phase.GIVEN, at=at)


def _superseded(trace: Trace, sent: Sent) -> bool:
    if trace.life is None or sent.counts:
        return False
    won = any(other.counts and other.part == sent.part for other in trace.sent)
    return won or sent.attempt < trace.life.owner


def _message(sent: Sent, *, late: bool, superseded: bool) -> str:
    what = f"late body to {sent.place}" if late else f"{_count(sent.messages, 'message')} to {sent.place}"
    if sent.timed:
        what += " for later"
    return f"{what}, superseded" if superseded else what


def _outcome(trace: Trace, decision: Decision, *, from_check: bool) -> str:
    timed = trace.life is None and any(sent.timed for sent in trace.sent)
    if from_check:
        return f"{decision.name}, not by its owner"
    if timed:
        return f"{decision.name}: {'it was due' if decision is Decision.COMMIT else 'recalled'}"
    return decision.name


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
