"""
Steps after the point of no return: they are written with the decision, and then only go forward.

They are part of the decision's own commit. None runs before it is final, so none has a compensation. The process that
drives the saga retries them until they are done; an operator may skip one. If the decision is never written, they do
not exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from txsaga.core.kernel import Kernel
from txsaga.core.stored_json import as_json
from txsaga.errors import SagaError
from txsaga.flows.ports import Start
from txsaga.flows.saga_code import Doing, action_of
from txsaga.flows.step import StepState


class Later:
    """A step that runs once the saga is committed."""

    def __init__(self, kernel: Kernel, txid: Callable[[], int | None], number: int, name: str) -> None:
        self._kernel, self._txid, self.number, self.name = kernel, txid, number, name

    @property
    def done(self) -> bool:
        """Return whether it is done."""
        return self._found() is not None

    def result(self) -> object:
        """Return its result; `SagaError` while it is not done."""
        found = self._found()
        if found is None:
            raise SagaError(f"step {self.name!r} is not done yet: it runs behind the decision, until it is done")
        return json.loads(found)

    def _found(self) -> str | None:
        txid = self._txid()
        steps = [] if txid is None else self._kernel.store.steps.of(txid)
        found = next((step for step in steps if step.number == self.number), None)
        return (found.output or "null") if found is not None and found.state is StepState.DONE else None


class PostCommit:
    """The steps after the point of no return."""

    def __init__(self) -> None:
        self.reached = False
        self.steps: list[Start] = []

    def add(
        self,
        number: int,
        do: Doing,
        name: str,
        *,
        on: str | None,
        input: Mapping[str, object],
        options: Mapping[str, object] | None = None,
        **times: Any,  # fields of an action
    ) -> None:
        """Keep a step to be written with the decision."""
        action = action_of(do, on, **times)
        if options:
            action = action.with_options(options)
        kept = as_json(dict(input), f"the input of step {name!r}")
        self.steps.append(Start(number, name, action.kind, action.resource, kept, None, action.written()))
