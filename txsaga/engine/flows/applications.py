"""
The application in a step of a flow: whether it still works, asked of the lease that its process renews.

Whoever waits for it may die and be tried again: the next one looks here, and waits on instead of having the work done
twice. It only looks. If nobody does, the next attempt begins, and supersedes the one that still works (R4).
"""

from __future__ import annotations

from typing import NamedTuple

from txsaga.engine.flows.presence import place_of
from txsaga.engine.kernel import Kernel
from txsaga.engine.lease import AT_WORK
from txsaga.errors import DecidedOtherwise
from txsaga.model.application import Application, read_application
from txsaga.model.flow_step import StepState, last_attempts


class Attempted(NamedTuple):
    """The attempt of a step that counts."""

    number: int
    state: StepState
    application: Application | None
    alive: bool  # its process was heard of within its lease
    why: str


def attempted(kernel: Kernel, txid: int, name: str) -> Attempted | None:
    """Return the last attempt of a step, if there is one; `DecidedOtherwise` once its flow is decided."""
    with kernel.store.ledgers.open() as ledger:
        standing, steps = ledger.standing(txid), last_attempts(ledger.flows.steps(txid, name))
    if standing is not None:
        raise DecidedOtherwise(txid, standing.name)
    if not steps:
        return None
    (step,) = steps
    application = read_application(step.mark)
    alive = application is not None and step.state is StepState.STARTED and _is_alive(kernel, txid, name, application)
    return Attempted(step.attempt, step.state, application, alive, step.why)


def _is_alive(kernel: Kernel, txid: int, name: str, application: Application) -> bool:
    return place_of(txid, application.member, name) in kernel.store.leases.alive(AT_WORK).get(*AT_WORK, ())
