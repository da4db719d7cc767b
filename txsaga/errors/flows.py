"""
What can go wrong with flows whose steps run in processes of their own.

    TransactionError
    ├── FlowUnknown          no flow of that key or number is under way here
    ├── StepDone             the step was done before: go on with the next
    ├── StepsOpen            a flow, or a unit of a lane, can't be settled while a step of it is not done
    └── OwnLock              it waits for what its own flow or transaction holds: it would wait for ever
    OtherReason
    └── RowsDiffer            a journalled statement changed another number of rows than it was to change
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.errors import TransactionError
from txsaga.errors.xa import OtherReason


class FlowUnknown(TransactionError):
    """No flow of that key or number is under way here."""


class StepDone(TransactionError):
    """The step was done before; `attempt` tells by which try."""

    def __init__(self, txid: int, name: str, attempt: int) -> None:
        super().__init__(f"step {name!r} of transaction {txid} is done (attempt {attempt}); go on with the next")
        self.txid, self.name, self.attempt = txid, name, attempt


class StepsOpen(TransactionError):
    """A step is not done, and what it belongs to can't be settled without it."""

    def __init__(self, txid: int, what: str, steps: Sequence[str]) -> None:
        named = ", ".join(map(repr, steps))
        super().__init__(
            f"{what} of transaction {txid} can't be settled: step {named} is not done; "
            "run it again, or name it in handled=[…] if its failure was dealt with, or roll back"
        )
        self.txid, self.steps = txid, tuple(steps)


class OwnLock(TransactionError):
    """Work waits for what its own flow, or its own transaction, holds: it would wait for ever."""

    def __init__(
        self,
        waiter: str,
        resource: str,
        holder: str,
        *,
        whole: str = "flow",
        remedy: str = 'hold both with hold="journal", or make one step of them',
    ) -> None:
        super().__init__(
            f"{waiter} would wait for ever in {resource!r} for a lock that its own {whole} holds in {holder}; {remedy}"
        )
        self.waiter, self.resource, self.holder = waiter, resource, holder


class RowsDiffer(OtherReason):
    """A journalled statement changed another number of rows than it was to change."""
