"""
Sensors about transactions: one that asks until it is decided, one that waits for it, one that waits for trouble.

A flow must not wait for its own decision, which comes when its last task ended: name another's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txsaga.provider.checking import checker_name
from txsaga.provider.sensors.waiting import WaitSensor
from txsaga.provider.waits.kinds import WaitKind


class CheckBackSensor(WaitSensor):
    """
    Asks what became of a transaction until it is decided, and decides it by the answer (CARD-05).

    The evidence is asked first, then `checker`, a function named module:function that the triggerer can import, or
    that of the task whose output it is given; it gets the question and answers COMMIT, ROLLBACK or UNKNOWN. Every
    `interval` seconds once, at most `max_checks` times. COMMITTED is success, ROLLED_BACK and out of checks are
    failures; what is still open is not asked about.
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
    """Waits until another transaction is decided: success when it is committed, failure when it is rolled back."""

    kind = WaitKind.DECISION

    def __init__(self, *, transaction: Any, **options: Any) -> None:
        super().__init__(target={"transaction": transaction}, **options)


class ParkedSensor(WaitSensor):
    """Waits until a transaction needs a person: one of a producer group, or any; its result names them."""

    kind = WaitKind.PARKED

    def __init__(self, *, group: str = "", **options: Any) -> None:
        super().__init__(target={"group": group}, **options)


def _checker_of(transaction: object) -> str:
    """Return the checker of the task whose output this is: its author named it, and no run can name another one."""
    return str(getattr(getattr(transaction, "operator", None), "checker", None) or "")


class MessagesSensor(WaitSensor):
    """Waits until a topic holds messages that a consumer group has not had yet."""

    kind = WaitKind.MESSAGES

    def __init__(self, *, topic: str, group: str, at_least: int = 1, **options: Any) -> None:
        super().__init__(target={"topic": topic, "group": group, "at_least": at_least}, **options)
