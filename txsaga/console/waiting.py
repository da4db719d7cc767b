"""
What a transaction still waits for, since when, and what happens next: one sentence on top of everything that is known.

It is derived from what is durable. Nothing is decided by it, and a process may know better at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from txsaga.checkback.profile import LEASE, CheckProfile, Exhausted
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.flows.ballot import Polled, Result
from txsaga.flows.branch import HEURISTIC
from txsaga.flows.step import StepState, last_attempts
from txsaga.inspect.overview import Checks
from txsaga.inspect.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What is missing, and what happens next."""

    what: str
    next: str
    since: datetime | None = None
    due: datetime | None = None  # when it happens next
    coming: str = "Next:"  # what is due then
    then: str = ""  # what follows when it has been tried often enough
    person: bool = False  # nothing happens without one


def waiting_of(trace: Trace, polls: Sequence[Polled], members: int, checks: CheckProfile) -> Waiting | None:
    """Return what a transaction waits for; None if nothing is left to do. `members` can answer for its group."""
    if trace.decision is not None:
        return next(_after(trace, trace.decision), None)
    if trace.due is not None:
        return Waiting(
            what="It is a delayed message.", next="An engine commits it.", due=trace.due, coming="It is due at"
        )
    if trace.listed is not None and trace.listed.parked is not None:
        return Waiting(
            what=f"It is parked: {trace.listed.parked}.",
            next="Nothing happens until a person resumes, commits or rolls it back.",
            person=True,
        )
    if trace.life is not None and trace.life.state is TxState.ACTIVE:
        return _open(trace, polls)
    if trace.life is not None and trace.life.state is TxState.PREPARED:
        return Waiting(
            what="Every branch has voted yes.",
            next="The coordinator decides, or check-back asks it.",
            since=trace.life.touched,
            due=_due(trace.listed),
            coming="The next check is at",
        )
    return _sealed(trace, trace.listed, members, checks)


def _open(trace: Trace, polls: Sequence[Polled]) -> Waiting:
    assert trace.life is not None
    silent = "If its owner falls silent, an engine rolls it back."
    for poll in polls:
        if poll.result is not Result.CARRIED:
            voters = ", ".join(poll.missing)
            what = f"Ballot {poll.ballot.name!r} is {poll.result.name.lower()}: it waits for a yes of {voters}."
            return Waiting(what=what, next=silent, since=trace.life.touched, person=True)
    running = [step.name for step in last_attempts(trace.steps) if step.state is StepState.STARTED]
    what = f"Its step {running[0]} runs." if running else "Its owner has not finished it."
    due = None if trace.life.flow else trace.life.touched + LEASE
    return Waiting(what=what, next=silent, since=trace.life.touched, due=due, coming="Its last sign is good until")


def _sealed(trace: Trace, listed: Checks | None, members: int, checks: CheckProfile) -> Waiting:
    number = (0 if listed is None else listed.asked) + 1
    remark = listed.remarks[-1] if listed is not None and listed.remarks else None
    last = f" The last answer was {remark.answer}: {remark.why}." if remark else ""
    since = trace.life.touched if trace.life else min((sent.born for sent in trace.sent), default=None)
    parks = trace.resource is not None or checks.on_exhausted is Exhausted.PARK
    fate = "parked for a person" if parks else "rolled back"
    check = Waiting(
        what=f"Its owner has not decided it, and only a checker of its group knows more.{last}",
        next="Check-back asks a checker, and decides.",
        since=since,
        due=_due(listed),
        coming=f"Check {min(number, checks.max_checks)} of {checks.max_checks} is at",
        then=f"After check {checks.max_checks} without an answer it is {fate}.",
        person=trace.resource is None and not members,
    )
    if trace.resource is not None:
        what = f"Its owner has not decided it. The evidence is in {trace.resource.name}.{last}"
        return replace(check, what=what, next="Check-back reads the evidence, and decides.")
    if not members:
        unanswered = "No checker of its group runs: start a producer with a checker, or decide it by hand."
        hours = f"{checks.total_limit.total_seconds() / 3600:g} hours"
        return replace(
            check, next=unanswered, then=f"A check without an answer does not count; after {hours} it is {fate}."
        )
    return check


def _due(listed: Checks | None) -> datetime | None:
    return None if listed is None else listed.due


def _after(trace: Trace, decision: Decision) -> Iterator[Waiting]:
    """Return what is left after a decision, the most urgent first."""
    told = "committed" if decision is Decision.COMMIT else "rolled back"
    for step in last_attempts(trace.steps):
        if step.state is StepState.COMPENSATION_FAILED:
            what = f"It is {told}, but the compensation of step {step.name} failed {step.tries} times: {step.error}."
            yield Waiting(what=what, next="Resume or skip the step.", since=step.at, person=True)
    for branch in trace.branches:
        if branch.state in HEURISTIC:
            what = f"It is {told}, but {branch.resource} has {branch.state.replace('_', ' ')}."
            yield Waiting(what=what, next="Fix it there, then forget the branch.", since=branch.at, person=True)
    for branch in trace.branches:
        if branch.unfinished:
            what = f"It is {told}, but {branch.resource} has not confirmed it."
            yield Waiting(what=what, next="An engine notifies the resource again.", since=branch.at)
    for step in trace.steps:
        forward = decision is Decision.COMMIT
        if step.waits and step.forward is forward and (forward or step.kind is not None):
            what = f"It is {told}. Step {step.name} is still to be {'done' if forward else 'compensated'}."
            yield Waiting(
                what=what, next="An engine does it, and retries.", since=step.at, due=step.due, coming="Next at"
            )
    if decision is Decision.COMMIT and any(sent.counts for sent in trace.sent) and not trace.given:
        yield Waiting(
            what="It is committed. Its messages have no offsets yet.", next="An engine's next tick gives them."
        )
