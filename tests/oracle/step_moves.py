"""Moves of steps in memory, each by the one table of their lifecycle."""

from __future__ import annotations

from datetime import datetime

from tests.oracle.rows import Kept
from txsaga.flows.calls import Mark, Start
from txsaga.flows.step import STEP, TARGETS, Left, StepEvent, StepRecord, StepState


def started(txid: int, owner: int, start: Start, now: datetime) -> StepRecord:
    """Write a step down."""
    return StepRecord(
        txid=txid,
        number=start.number,
        name=start.name,
        attempt=owner,
        state=StepState.STARTED,
        kind=start.kind,
        resource=start.resource,
        input=start.input,
        compensation=start.compensation,
        action=start.action,
        output=None,
        left=Left.UNKNOWN,
        error="",
        attempts=0,
        due=None if start.expires is None else now + start.expires,
        at=now,
    )


def marked(kept: Kept, mark: Mark, now: datetime) -> bool:
    """Write down what became of a step."""
    found, opened = kept.steps.get((mark.txid, mark.number)), kept.lives.get(mark.txid)
    if found is None or opened is None or opened.life.owner != mark.owner:
        return False
    if mark.event is None:
        if found.state not in {state for state, _ in STEP.moves}:
            return False
        state = found.state
    elif found.state in STEP.sources(mark.event):
        state = TARGETS[mark.event]
    else:
        return False
    kept.steps[mark.txid, mark.number] = found._replace(
        state=state,
        left=mark.left or found.left,
        output=mark.output or found.output,
        error=mark.error or found.error,
        attempts=found.attempts + mark.tries,
        at=now,
    )
    return True


def compensate(kept: Kept, txid: int, now: datetime) -> bool:
    """Let the steps of a transaction that was rolled back be undone; tell whether there are any."""
    sources, found = STEP.sources(StepEvent.COMPENSATE), False
    for place, step in kept.steps.items():
        if place[0] == txid and not step.forward and step.state in sources:
            kept.steps[place] = step._replace(state=StepState.COMPENSATING, at=now)
            found = True
    return found


def by_hand(kept: Kept, place: tuple[int, int], event: StepEvent, why: str, now: datetime) -> bool:
    """Move a step as a person says, and let its saga go on at once."""
    found, saga = kept.steps.get(place), kept.sagas.get(place[0])
    if found is None or saga is None or found.state not in STEP.sources(event):
        return False
    kept.steps[place] = found._replace(state=TARGETS[event], attempts=0, error=why or found.error, at=now)
    kept.sagas[place[0]] = saga._replace(until=now, stalled=False, why="")
    return True
