"""
Sensors for transactions: check one until it is decided, wait for its decision, or wait for stuck transactions.

A flow must not wait for its own decision, which comes after its last task has ended; wait for another flow's. All wait
in the triggerer or, with `deferrable=False`, like any Airflow sensor. A sensor whose target is known when its DAG is
parsed, or is a template of params, never uses a worker. A sensor that needs another task's output, and each mapped one,
uses a worker briefly: Airflow starts no such task from a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from txsaga.provider.connections import AMBIENT
from txsaga.provider.options import checker_name, every, store_of
from txsaga.provider.triggers import WaitTrigger
from txsaga.provider.waits import StorePoll, Wait, WaitAnswer, WaitKind, told_of, wait_of


class AnswerArg(PlainXComArg):
    """A reference to the answer of a sensor."""

    def resolve(self, context: Mapping[str, Any]) -> Any:
        """Return the answer."""
        return told_of(super().resolve(context))


NEEDS_A_TASK = ("ti.", "ti[", "xcom", "task_instance", "macros", "var.", "conn.")
"""Parts of templates that must be rendered on a worker."""
COUNT = "txsaga_checks"
TRIGGER = f"{WaitTrigger.__module__}.{WaitTrigger.__name__}"


class WaitSensor(BaseSensorOperator):
    """Wait for one condition in a store; the result is a dict, also on failure."""

    kind: ClassVar[WaitKind]
    template_fields = ("target",)
    ui_color = "#e3ecf5"
    start_trigger_args = StartTriggerArgs(
        trigger_cls=TRIGGER, trigger_kwargs={"kind": "", "target": {}}, next_method="execute_complete"
    )
    start_from_trigger = True

    def __init__(
        self,
        *,
        target: Mapping[str, Any],
        store: str | None = None,
        deferrable: bool = True,
        look_every: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.skips = self.soft_fail or self.never_fail
        self.target, self.store, self.deferrable = dict(target), store_of(store), deferrable
        self.look_every = every(look_every)
        self.start_from_trigger = deferrable and all(map(_is_plain, self.target.values()))
        self.start_trigger_args = replace(
            type(self).start_trigger_args,
            trigger_kwargs=self._of_trigger(self.target if self.start_from_trigger else {}),
            timeout=timedelta(seconds=self.timeout),
        )

    def _of_trigger(self, target: Mapping[str, Any]) -> dict[str, Any]:
        asked = {"kind": self.kind.value, "target": target, "store": self.store}
        return asked | {"interval": self.look_every, "skips": self.skips}

    @property
    def output(self) -> AnswerArg:
        """The answer, for other tasks."""
        return AnswerArg(operator=self)

    def execute(self, context: Context) -> Any:
        """Wait in the triggerer, or poke."""
        wait = wait_of(self.kind, self.target)
        if not self.deferrable:
            return super().execute(context)
        target = dict(self.target)
        if wait.transaction:
            target["transaction"] = wait.transaction
        self.defer(
            trigger=WaitTrigger(**self._of_trigger(target)),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: object = None) -> dict[str, Any]:
        """Return the answer if Airflow resumes the task nevertheless, after polling the store again."""
        answer, _ = self._look(wait_of(self.kind, self.target), 0)
        return self._said(answer)

    def poke(self, context: Context) -> PokeReturnValue:
        """Poll once."""
        kept: Any = context.get("task_state_store")
        count = int((kept.get(COUNT) if kept else None) or 0)
        answer, count = self._look(wait_of(self.kind, self.target), count)
        if kept is not None and self.kind is WaitKind.CHECK_BACK:
            kept.set(COUNT, str(count))
        return PokeReturnValue(is_done=answer is not None, xcom_value=self._said(answer) if answer else None)

    def _look(self, wait: Wait, count: int) -> tuple[WaitAnswer | None, int]:
        looking = StorePoll(AMBIENT.reaching(self.store))
        if wait.kind is WaitKind.CHECK_BACK:
            return looking.check(wait, count)
        return looking.look([wait]).get(wait), count

    def _said(self, answer: WaitAnswer | None) -> dict[str, Any]:
        if answer is None:
            raise AirflowFailException("the object of the wait no longer exists")
        if not answer.good:
            raise AirflowFailException(answer.told)
        self.log.info("%s", answer.told)
        return dict(answer.value)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return "{{" not in value or not any(word in value for word in NEEDS_A_TASK)
    return value is None or isinstance(value, (int, float))


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
        # That of the task whose output this is: only the DAG's author sets it, no run can name another.
        own = str(getattr(getattr(transaction, "operator", None), "checker", None) or "")
        target = {
            "transaction": transaction,
            "checker": own if checker is None else checker_name(checker),
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


class MessagesSensor(WaitSensor):
    """Wait until a topic holds messages that a consumer group has not yet received."""

    kind = WaitKind.MESSAGES

    def __init__(self, *, topic: str, group: str, at_least: int = 1, **options: Any) -> None:
        super().__init__(target={"topic": topic, "group": group, "at_least": at_least}, **options)
