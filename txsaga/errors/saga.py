"""
What can be wrong with a saga.

    SagaError
    ├── StepRefused              the step comes after its own compensation: nothing of it was done
    ├── StepLeftOut              the step found that it has nothing to do: nothing of it was done
    ├── StepTimedOut             a step or a compensation took longer than it may; what became of it is not known
    ├── ServiceFailed            a service did not say that the step is done
    │   ├── ServiceRefused       it said no, for sure: nothing was done
    │   └── AnswerLost           it said that it is done; what else it answered is not all here
    ├── ReservationExpired       a reservation ran out before the decision; the saga rolls back
    ├── CodeMissing              a function that the saga names is not registered in this process
    ├── UnknownStep              the saga has no such step
    └── NotCompensated           ROLLBACK stands, and something is still to be undone; another process may be at it
        └── CompensationFailed   a compensation is out of retries: resume or skip it by hand

If one of these is caught and dropped, nothing is lost: what was written down of the steps is undone all the same.
"""

from __future__ import annotations

from txsaga.errors import TransactionError


class SagaError(TransactionError):
    """Something is wrong with a saga."""


class StepRefused(SagaError):
    """The step comes after its own compensation; nothing of it was done."""

    def __init__(self, transaction: str, number: int) -> None:
        super().__init__(f"step {number} of {transaction} comes after its compensation; drop this work")
        self.number = number


class StepLeftOut(SagaError):
    """Raised by a step that has nothing to do: nothing of it was done, and nothing is to be undone."""


class StepTimedOut(SagaError):
    """It took longer than it may; what became of it is not known."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than {seconds:g} s; what became of it is not known")


class ServiceFailed(SagaError):
    """A service did not say that it is done."""


class ServiceRefused(ServiceFailed):
    """A service said no: nothing was done."""


class AnswerLost(ServiceFailed):
    """A service said that it is done; what else it answered is too long, or ended early."""


class ReservationExpired(SagaError):
    """A reservation ran out before the decision."""

    def __init__(self, txid: int, name: str) -> None:
        super().__init__(f"the reservation of step {name!r} of transaction {txid} has expired; the saga rolls back")
        self.txid = txid


class CodeMissing(SagaError):
    """A function that the saga names is not registered in this process."""

    def __init__(self, name: str, unloaded: str = "") -> None:
        super().__init__(
            f"{name!r} is not registered in this process{unloaded}; "
            "name the module that registers it in TXSAGA_SAGAS, or with `txsaga engine --sagas`"
        )
        self.name = name


class UnknownStep(SagaError):
    """The saga has no such step."""

    def __init__(self, txid: int, step: object) -> None:
        super().__init__(f"transaction {txid} has no step {step}; `txsaga saga show {txid}` lists them")


class NotCompensated(SagaError):
    """Something of a saga is still to be undone."""

    retryable = True

    def __init__(self, txid: int, why: str) -> None:
        super().__init__(f"saga {txid} is rolled back and not undone to its end: {why}")
        self.txid = txid


class CompensationFailed(NotCompensated):
    """A compensation is out of retries; a person resumes or skips it."""

    retryable = False
