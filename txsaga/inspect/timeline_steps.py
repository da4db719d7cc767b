"""
The steps of one transaction, derived from what is durable about it.

A step without a recorded moment has none here. The outcome of local work is derived from the decision alone, unless
its evidence was examined.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.evidence.late_bodies import LATE_PART
from txsaga.flows.branch import NOTHING_DONE, OPEN, Branch, BranchState
from txsaga.flows.step import MAIN as MAIN_UNIT
from txsaga.flows.step import Hold, Left, Step, StepState, last_attempts, read_application
from txsaga.inspect.overview import Audited
from txsaga.inspect.timeline import MAIN_LANE, TimelineKind, TimelineStep, in_order
from txsaga.inspect.timeline import TimelinePhase as Phase
from txsaga.inspect.trace import RecordedDecision, SentMessages, Trace, WrittenTable
from txsaga.messages.replay import REPLAY, REPLAYED

CHANGE, HELD, NONE, FINAL = TimelineKind
CLOSED = (TxState.SEALED, TxState.PREPARED)
CHECK = "CHECK "
FORCED = "the decision was forced; --evidence shows whether it committed"
RECORDED = {
    "PARKED": "parked",
    "RESUMED": "resumed",
    REPLAY: "replays transaction {}",
    REPLAYED: "replayed as transaction {}",
}
FATES = {
    BranchState.COMMITTED: ("committed", FINAL),
    BranchState.ROLLED_BACK: ("rolled back", NONE),
    BranchState.HEURISTIC_COMMITTED: ("found committed outside txsaga", FINAL),
    BranchState.HEURISTIC_ROLLED_BACK: ("found rolled back outside txsaga", NONE),
    BranchState.HEURISTIC_MIXED: ("found partly committed", FINAL),
    BranchState.HEURISTIC_HAZARD: ("found with unknown outcome", HELD),
    BranchState.FORGOTTEN: ("forgotten", NONE),
}
"""How a branch ended, and whether its resource may still hold undo data for it."""
BECAME = {
    StepState.COMPENSATING: ("is to be undone", HELD),
    StepState.COMPENSATED: ("undone", NONE),
    StepState.COMPENSATION_FAILED: ("can't be undone", HELD),
    StepState.SKIPPED: ("skipped by hand", NONE),
}
"""What became of a step after the decision, and whether any of it is still to be undone."""
UNITS = {Decision.COMMIT: ("committed", FINAL), Decision.ROLLBACK: ("rolled back", NONE)}
VOTED = (
    BranchState.COMMITTED,
    BranchState.HEURISTIC_ROLLED_BACK,
    BranchState.HEURISTIC_MIXED,
    BranchState.HEURISTIC_HAZARD,
)
"""States that show, in a committed transaction, that a branch had voted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What an examination of the evidence of local work found, without fencing anything."""

    committed: bool | None  # None: there is no evidence, or no answer
    why: str


def steps_of(trace: Trace, looked: Looked | None = None) -> list[TimelineStep]:
    """Return the steps of a transaction in order."""
    parts = (_opened, _taken_over, _stored, _branched, _stepped, _settled)
    later = (_closed, _asked, _parked, _recorded, _decided, _given)
    told = (step for part in (*parts, *later) for step in part(trace))
    return in_order([*told, *_worked(trace, looked)])


def _opened(trace: Trace) -> Iterator[TimelineStep]:
    life = trace.life
    if life is None:
        return
    under = f"opened under key {life.key}, attempt {life.epoch}" if life.key is not None else "opened"
    yield TimelineStep(under, CHANGE, Phase.OPENED, at=life.opened)
    if trace.amends is not None:
        yield TimelineStep(f"amends transaction {trace.amends}", HELD, Phase.OPENED, at=life.opened)
    if trace.amended_as is not None:
        other, at = trace.amended_as
        yield TimelineStep(f"amended by transaction {other}", NONE, Phase.AFTER, at=at)
    if life.state is TxState.ACTIVE and life.touched > life.opened:
        who = "a process" if life.flow else f"owner {life.owner}"
        yield TimelineStep(f"{who} was last seen", HELD, Phase.STORED, at=life.touched)


def _taken_over(trace: Trace) -> Iterator[TimelineStep]:
    for owner in range(2, trace.life.owner + 1 if trace.life else 0):
        before = min((sent.born for sent in trace.sent if sent.attempt >= owner), default=None)
        phase = Phase.OPENED if before else Phase.STORED
        what = f"end begun by owner {owner}" if trace.life and trace.life.flow else f"taken over by owner {owner}"
        yield TimelineStep(what, CHANGE, phase, before=before)


def _stored(trace: Trace) -> Iterator[TimelineStep]:
    for sent in trace.sent:
        late = trace.life is not None and sent.part == LATE_PART
        kind, phase = (FINAL, Phase.DECIDED) if late else (CHANGE, Phase.STORED)
        what = _message(sent, late=late, superseded=_superseded(trace, sent))
        yield TimelineStep(what, kind, phase, at=sent.born, who=f"owner {sent.attempt}" if trace.life else "")
    for slot, place in trace.kept:
        yield TimelineStep(f"place {slot} kept for a late body to {place}", CHANGE, Phase.STORED)
    for each in trace.written:
        what, tail = f"{_count(each.rows, 'row')} staged for table", ", superseded" * _superseded(trace, each)
        yield TimelineStep(f"{what} {each.name}: {each.mode}{tail}", CHANGE, Phase.STORED, who=f"owner {each.attempt}")
    for group, member, place, first, last in trace.bound:
        what = f"{_offsets(first, last)} of {place} bound for group {group}"
        yield TimelineStep(what, CHANGE, Phase.STORED, who=member)


def _branched(trace: Trace) -> Iterator[TimelineStep]:
    """Yield each attempt of a branch in the lane of its resource: named, voted or left, and its outcome."""
    of_flow = {(step.branch, step.attempt) for step in trace.steps}
    of_flow |= {(unit.branch, unit.attempt) for unit in trace.units}
    for branch in trace.branches:
        tried = f", attempt {branch.attempt}" if branch.attempt > 1 else ""
        own = (branch.number, branch.attempt) in of_flow  # its step or its unit shows it
        lane = f"{branch.resource} aux" if branch.aux else branch.resource
        what, fate = f"{'unit' if branch.aux and not own else 'branch'} {branch.number}", FATES.get(branch.state)
        at = branch.at if branch.state is BranchState.ACTIVE else None
        left = branch.state is BranchState.COMMITTED and branch.why == NOTHING_DONE
        if not own:
            kind = NONE if left else CHANGE
            yield TimelineStep(f"{what} named{tried}", kind, Phase.OPENED, lane=lane, at=at)
        if left:
            yield TimelineStep(f"{what} left: nothing to commit{tried}", NONE, Phase.WORKED, lane=lane)
            continue
        if not own and _has_voted(trace, branch):
            yield TimelineStep(f"{what} voted", HELD, Phase.WORKED, lane=lane)
        if fate:
            told, kind = fate
            phase = Phase.STORED if branch.aux else Phase.GIVEN
            yield TimelineStep(f"{what} {told}{tried}", kind, phase, lane=lane, at=branch.at, why=branch.why)


def _has_voted(trace: Trace, branch: Branch) -> bool:
    """Return whether a branch was asked for its vote; the one whose commit is the decision never is."""
    if branch.aux or (trace.resource is not None and trace.resource.id == branch.recorded):
        return False
    return branch.state is BranchState.PREPARED or (trace.decision is Decision.COMMIT and branch.state in VOTED)


def _stepped(trace: Trace) -> Iterator[TimelineStep]:
    """Yield each attempt of each step in the lane of its resource: what became of it, and whether it was undone."""
    flow, last = trace.life is not None and trace.life.flow, last_attempts(trace.steps)
    unfinished = {(each.number, each.attempt) for each in trace.branches if each.state in OPEN}
    for step in trace.steps:
        name = f"step {step.name}" if flow else f"step {step.number} {step.name}"
        gone = "superseded" if step not in last else "had not ended" if trace.decision is not None else None
        what, kind = _of_flow(step, gone) if flow else _of_saga(step)
        kind = CHANGE if step in last and (step.branch, step.attempt) in unfinished else kind
        undone, left = BECAME.get(step.state, ("", CHANGE))
        lane = _lane(step.resource, aux=step.lane)
        phase, at = Phase.GIVEN if step.forward else Phase.STORED, step.started if undone else step.at
        why = step.error if step.state is StepState.FAILED else ""
        yield TimelineStep(f"{name} {what}", kind, phase, lane=lane, at=at, why=why)
        if undone:
            yield TimelineStep(f"{name} {undone}", left, Phase.AFTER, lane=lane, at=step.at, why=step.error)


def _of_saga(step: Step) -> tuple[str, TimelineKind]:
    fate = str(step.state) if step.state in (StepState.DONE, StepState.FAILED) else "began"
    return fate, FINAL if step.forward or step.compensation is None else CHANGE


def _of_flow(step: Step, gone: str | None) -> tuple[str, TimelineKind]:
    application = read_application(step.mark)
    tried = f", attempt {step.attempt}" if step.attempt > 1 else ""
    tried += "" if application is None else f", by {application.name}"
    if step.left is Left.WORK:
        return f"done{_held(step)}{tried}", CHANGE
    if step.state is StepState.FAILED:
        return f"failed{tried}", NONE
    if step.state is StepState.STARTED:
        return f"{gone or 'under way, or its process died'}{tried}", NONE if gone else CHANGE
    return f"began{tried}", CHANGE


def _held(step: Step) -> str:
    if step.hold is Hold.JOURNAL:
        return f": {_count(step.statements, 'statement')} in the journal"
    return ", held prepared" if step.branch is not None else ""


def _settled(trace: Trace) -> Iterator[TimelineStep]:
    """Yield each unit that its lane settled."""
    for unit in trace.units:
        if unit.decision is not None and unit.number != MAIN_UNIT:
            told, kind = UNITS[unit.decision]
            what, lane = f"unit {unit.number} of the lane {told}", _lane(unit.resource, aux=True)
            yield TimelineStep(what, kind, Phase.STORED, lane=lane, at=unit.at)


def _lane(resource: str | None, *, aux: bool) -> str:
    if resource is None:
        return MAIN_LANE
    return f"{resource} aux" if aux else resource


def _closed(trace: Trace) -> Iterator[TimelineStep]:
    life = trace.life
    if life is None or life.state is TxState.ACTIVE:
        return
    if life.state is TxState.ROLLED_BACK and (life.flow or not any(sent.counts for sent in trace.sent)):
        return  # it is not known whether it was closed before the rollback
    at = life.touched if life.state in CLOSED else None
    yield TimelineStep("sealed by its owner", HELD, Phase.CLOSED, at=at)


def _worked(trace: Trace, looked: Looked | None) -> Iterator[TimelineStep]:
    if trace.resource is None:
        return
    lane = trace.resource.name
    committed, why, record = trace.decision is Decision.COMMIT, _found_out(trace), _decided_by(trace)
    forced = record is not None and trace.op is not None and record.what == trace.op.decision.audited[2]
    if looked is not None and looked.committed is not None:
        committed, why = looked.committed, looked.why
    elif looked is not None or trace.decision is None or forced:
        why = looked.why if looked else FORCED if forced else "it was not checked whether it committed"
        yield TimelineStep("local work", HELD, Phase.WORKED, lane=lane, why=why)
        return
    kind, what = (FINAL, "local work committed") if committed else (NONE, "local work did not commit")
    yield TimelineStep(what, kind, Phase.WORKED, lane=lane, why=why)


def _found_out(trace: Trace) -> str:
    """Return how the outcome of local work is known: check-back may have examined the evidence."""
    op, record = trace.op, _decided_by(trace)
    if op is not None and op.from_check and record is not None:
        return record.why if record.what == op.decision.name else "the evidence did not contradict the operator"
    return "by the decision; the evidence was not checked"


def _asked(trace: Trace) -> Iterator[TimelineStep]:
    listed = trace.listed
    if trace.due is not None:
        yield TimelineStep("due", HELD, Phase.ASKED, at=trace.due)
    if listed is None:
        return
    for at, who, answer, why in listed.remarks:
        yield TimelineStep(f"check: {answer}", HELD, Phase.ASKED, at=at, who=who, why=why)
    if not listed.remarks:
        yield TimelineStep(f"found undecided, {_count(listed.asked, 'check')} since", HELD, Phase.ASKED)
    if listed.parked is None:
        yield TimelineStep("next check", HELD, Phase.PARKED, at=listed.due)


def _parked(trace: Trace) -> Iterator[TimelineStep]:
    """Yield a parking that left no audit row."""
    why = _why_parked(trace)
    if why is not None and not any(each.what == "PARKED" for each in trace.audits):
        at = trace.life.touched if trace.life and trace.life.state is TxState.PARKED else None
        yield TimelineStep("parked", HELD, Phase.PARKED, at=at, why=why)


def _why_parked(trace: Trace) -> str | None:
    if trace.listed is not None and trace.listed.parked is not None:
        return trace.listed.parked
    return "" if trace.life and trace.life.state is TxState.PARKED else None


def _recorded(trace: Trace) -> Iterator[TimelineStep]:
    decided, other = _decided_by(trace), trace.replays or trace.replayed_as
    over = next((step.at or step.before for step in _decided(trace)), None)
    for each in trace.audits:
        if each.what.startswith(CHECK):
            what = f"check: {each.what.removeprefix(CHECK)}"
            yield TimelineStep(what, HELD, Phase.ASKED, at=each.at, who=each.who, why=each.why)
        elif each is not decided:
            after = over is not None and each.at > over
            kind, phase = (NONE, Phase.AFTER) if after or each.what == REPLAYED else (HELD, Phase.PARKED)
            what = RECORDED[each.what].format(other) if each.what in RECORDED else each.what
            yield TimelineStep(what, kind, phase, at=each.at, who=each.who, why=each.why)


def _decided(trace: Trace) -> Iterator[TimelineStep]:
    op = trace.op
    if op is None:
        return
    record = _decided_by(trace)
    shows = op.decision is Decision.COMMIT and not any(sent.counts for sent in trace.sent)  # rows of tables at most
    kind = FINAL if shows and any(each.counts for each in trace.written) else NONE
    at = record.at if record else trace.life.touched if trace.life else None
    before = None if at else min([given.at for given in trace.given], default=op.before)
    who, why = (record.who, record.why) if record else ("", "")
    yield TimelineStep(_outcome(trace, op, record), kind, Phase.DECIDED, at=at, before=before, who=who, why=why)


def _decided_by(trace: Trace) -> Audited | None:
    """Return the audit row that was written with the decision."""
    names = () if trace.op is None else trace.op.decision.audited
    return next((each for each in reversed(trace.audits) if each.what in names), None)


def _given(trace: Trace) -> Iterator[TimelineStep]:
    for place, first, last, at in trace.given:
        yield TimelineStep(f"{_offsets(first, last)} of {place} assigned", NONE, Phase.GIVEN, at=at)


def _superseded(trace: Trace, sent: SentMessages | WrittenTable) -> bool:
    if trace.life is None or sent.counts:
        return False
    others: list[SentMessages | WrittenTable] = [*trace.sent, *trace.written]
    won = any(other.counts and other.part == sent.part for other in others)
    return won or sent.attempt < trace.life.owner


def _message(sent: SentMessages, *, late: bool, superseded: bool) -> str:
    what = f"late body to {sent.place}" if late else f"{_count(sent.messages, 'message')} to {sent.place}"
    if sent.timed:
        what += " for later"
    return f"{what}, superseded" if superseded else what


def _outcome(trace: Trace, op: RecordedDecision, record: Audited | None) -> str:
    name, timed = op.decision.name, trace.life is None and any(sent.timed for sent in trace.sent)
    if record is not None and record.what != name:
        return name + record.what.removeprefix(name).lower()
    if op.from_check:
        return f"{name}, not by its owner"
    return f"{name}: {'it was due' if op.decision is Decision.COMMIT else 'recalled'}" if timed else name


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
