"""
A step of a flow that is not held work: a function, a statement that commits at once, a call to a service, a message.

In a resource it leaves a row in its own commit, and is done once, however often it is tried. Anywhere else it is done
at least once: if a process dies before the step is written as done, it runs again. Its compensation is written before
it runs. If the end is never written, the next attempt finds the row, or runs the step again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial

from txsaga.checkback.heartbeat import Presence
from txsaga.consume.dead_letter import short_cause
from txsaga.core.arguments import check_kind
from txsaga.core.failure import report_failure
from txsaga.core.kernel import Kernel
from txsaga.core.records import Doubt, TxRecord
from txsaga.core.stored_json import as_json
from txsaga.errors import ConfigError, StepDone, TxSagaError
from txsaga.flows.calls import Start
from txsaga.flows.saga_actions import Turn
from txsaga.flows.saga_code import Doing, undoing
from txsaga.flows.saga_step import RequestedStep, StepRetry, Tries
from txsaga.flows.saga_values import Action, Undo
from txsaga.flows.step import Left, StepKind
from txsaga.flows.step_attempts import Attempts
from txsaga.flows.step_records import HOME, FlowStep

logger = logging.getLogger("txsaga")


class StepCall:
    """One attempt of such a step."""

    def __init__(self, kernel: Kernel, life: TxRecord) -> None:
        self._kernel, self._life = kernel, life
        self._attempts, self._trying = Attempts(kernel, life), StepRetry(kernel)

    def run(self, asked: RequestedStep) -> object:
        """Run it, and return its result; if it was done before, return the stored result."""
        if asked.on is not None:
            self._kernel.resource(asked.on)
        action = asked.action()
        start = asked.start(0, action)
        with Presence(self._kernel, self._life.txid, start):
            try:
                step = self._attempts.begin(asked.name, None, start).step
            except StepDone:
                return self._known(asked.name)
            self._kernel.running.begin(self, Doubt.of(self._life))
            try:
                return self._run(step, action, asked)
            finally:
                self._kernel.running.end(self)

    def _run(self, step: FlowStep, action: Action, asked: RequestedStep) -> object:
        transaction = self._kernel.store.registry.identity.transaction(self._life.txid)
        turn = Turn(transaction, self._life.txid, self._life.group, step.number, asked.name)
        tries = Tries(action)
        with report_failure(partial(self._failed, step, tries)):
            output = self._trying.run(turn, action, asked, tries).output
            told = asked.told(output)
        self._attempts.done(step, vote=None, entries=(), rows=(), output=told)
        return output

    def _failed(self, step: FlowStep, tries: Tries, error: BaseException) -> None:
        # An earlier attempt may still be running: only the first one can know that nothing is left.
        left = tries.left if step.attempt == 1 else Left.UNKNOWN
        try:
            self._attempts.failed(step, short_cause(f"{type(error).__name__}: {error}"), left)
        except TxSagaError as reason:
            logger.warning("step %r of transaction %d is not written as failed: %s", step.name, self._life.txid, reason)

    def _known(self, name: str) -> object:
        steps = self._kernel.store.steps.of(self._life.txid)
        output = next((step.output for step in steps if step.name == name), None)
        return None if output is None else json.loads(output)


def declared(
    kernel: Kernel, name: str, where: str | None, compensate: Doing | Undo | None, input: Mapping[str, object] | None
) -> Start | None:
    """Check the compensation of a step; return what is to be written, None without one."""
    undo = undoing(compensate, where)
    if undo is None:
        if input is not None:
            raise ConfigError(f"step {name!r} has an input and no compensation to get it; give compensate= too")
        return None
    if where == HOME:
        raise ConfigError(f"step {name!r} writes with COMMIT alone, nothing is to be undone; leave compensate= out")
    if input is not None:
        check_kind(input, Mapping, "the input of a step", "give a mapping of names to JSON values")
    if undo.resource is not None:
        kernel.resource(undo.resource)
    kept = as_json(dict(input or {}), f"the input of step {name!r}")
    kind = StepKind.CALL if where is None else StepKind.HELD
    return Start(0, name, kind, where, kept, undo.written())
