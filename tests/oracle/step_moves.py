"""Moves of steps in memory, each by the one table of their lifecycle."""

from __future__ import annotations

from datetime import datetime

from tests.oracle.rows import Kept
from txsaga.flows.requests import Mark, Start
from txsaga.flows.step import STEP, TARGETS, Hold, Step, StepEvent, StepState


def started(txid: int, owner: int, start: Start, now: datetime) -> Step:
    """Write a step down."""
    return Step(
        txid=txid,
        number=start.number,
        name=start.name,
        attempt=owner,
        hold=Hold.COMMIT,
        kind=start.kind,
        resource=start.resource,
        input=start.input,
        compensation=start.compensation,
        action=start.action,
        due=None if start.expires is None else now + start.expires,
        started=now,
        at=now,
    )


def declared(kept: Kept, txid: int, number: int) -> Step | None:
    """Return the attempt of a step that may have to be undone, or done."""
    steps = (step for place, step in kept.steps.items() if place[:2] == (txid, number))
    return next((step for step in steps if step.kind is not None), None)


def marked(kept: Kept, mark: Mark, now: datetime) -> bool:
    """Write down what became of a step."""
    found, opened = declared(kept, mark.txid, mark.number), kept.lives.get(mark.txid)
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
    kept.steps[found[:3]] = found._replace(
        state=state,
        left=mark.left or found.left,
        output=mark.output or found.output,
        error=mark.error or found.error,
        tries=found.tries + mark.tries,
        at=now,
    )
    return True


def compensate(kept: Kept, txid: int, now: datetime) -> bool:
    """Let the steps of a transaction that was rolled back be undone; tell whether there are any."""
    sources, found = STEP.sources(StepEvent.COMPENSATE), False
    for place, step in kept.steps.items():
        if place[0] == txid and step.kind is not None and not step.forward and step.state in sources:
            kept.steps[place] = step._replace(state=StepState.COMPENSATING, at=now)
            found = True
    return found


def by_hand(kept: Kept, place: tuple[int, int], event: StepEvent, why: str, now: datetime) -> bool:
    """Move a step as a person says, and let its saga go on at once."""
    found, saga = declared(kept, *place), kept.sagas.get(place[0])
    if found is None or saga is None or found.state not in STEP.sources(event):
        return False
    kept.steps[found[:3]] = found._replace(state=TARGETS[event], tries=0, error=why or found.error, at=now)
    kept.sagas[place[0]] = saga._replace(until=now, stalled=False, why="")
    return True
