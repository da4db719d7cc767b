"""
Sensors for transactions: check one until it is decided, wait for its decision, or wait for stuck transactions.

A flow must not wait for its own decision, which comes after its last task has ended; wait for another flow's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txsaga.provider.checking import checker_name
from txsaga.provider.sensors.waiting import WaitSensor
from txsaga.provider.waits.kinds import WaitKind


class CheckBackSensor(WaitSensor):
    """
    Ask for the outcome of a transaction until it is known, and decide the transaction accordingly (CARD-05).

    Each check asks the evidence first, then `checker`, a function (module:function) that the triggerer can import; by
    default that of the task whose output is given as `transaction`. The checker gets the question and answers COMMIT,
    ROLLBACK or UNKNOWN. There is one check every `interval` seconds, at most `max_checks`. COMMITTED is success;
    ROLLED_BACK and running out of checks are failures. A transaction that is still open is not checked.
    """

    kind = WaitKind.CHECK_BACK

    def __init__(
        self,
        *,
        transaction: Any,
        checker: str | Callable[..., Any] | None = None,
        interval: float = 60.0,
        max_checks: int = 15,
        **options: Any,
    ) -> None:
        options.setdefault("poke_interval", interval)
        target = {
            "transaction": transaction,
            "checker": _checker_of(transaction) if checker is None else checker_name(checker),
            "interval": interval,
            "max_checks": max_checks,
        }
        super().__init__(target=target, **options)


class DecisionSensor(WaitSensor):
    """Wait until another transaction is decided: success if it is committed, failure if it is rolled back."""

    kind = WaitKind.DECISION

    def __init__(self, *, transaction: Any, **options: Any) -> None:
        super().__init__(target={"transaction": transaction}, **options)


class ParkedSensor(WaitSensor):
    """Wait until transactions of a producer group, or of any, need an operator; the result lists them."""

    kind = WaitKind.PARKED

    def __init__(self, *, group: str = "", **options: Any) -> None:
        super().__init__(target={"group": group}, **options)


def _checker_of(transaction: object) -> str:
    """Return the checker of the task whose output this is: only the DAG's author sets it, no run can name another."""
    return str(getattr(getattr(transaction, "operator", None), "checker", None) or "")


class MessagesSensor(WaitSensor):
    """Wait until a topic holds messages that a consumer group has not yet received."""

    kind = WaitKind.MESSAGES

    def __init__(self, *, topic: str, group: str, at_least: int = 1, **options: Any) -> None:
        super().__init__(target={"topic": topic, "group": group, "at_least": at_least}, **options)
