"""
Tasks that look after a store: the engine's roles, staged files to collect, parked transactions, replays.

Any number of tasks with roles and of engines can run at once: each role takes a lease, or is safe to run twice. If
neither ever runs, messages get no offsets and transactions whose owner died stay undecided.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import BaseOperator, Context, Param
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from txsaga.airflow_host.instance import RunOf, run_of
from txsaga.checkback.runs import RunState
from txsaga.core.arguments import read_number
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError
from txsaga.provider.connections import AMBIENT, connections_of
from txsaga.provider.operators.task import refused_for_good
from txsaga.provider.options import checker_name, store_of
from txsaga.provider.reference import this_airflow

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.core.role_loop import Role


ENDED = ("success", "failed")
GONE = "Dag run with dag_id '{dag}' and run_id '{run}' was not found"
"""Airflow's message for a run that does not exist; anything else does not show that it is gone."""
PAUSE = 1.0


class EngineRoles(BaseOperator):
    """Run all roles of a store for some seconds."""

    ui_color = "#efe9dc"

    def __init__(
        self,
        *,
        store: str | None = None,
        seconds: float = 50.0,
        checkers: Mapping[str, str | Callable[..., Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.store, self.seconds = store_of(store), seconds
        self.checkers = {group: checker_name(checker) for group, checker in (checkers or {}).items()}

    def execute(self, context: Context) -> dict[str, int]:
        """Run rounds; return how much each role did."""
        broker = reached(self.store)
        ti: Any = context["ti"]
        broker.ask_runs(TaskRuns(ti.get_dagrun_state, this_airflow()))
        roles, done = [*self._answering(broker), *broker.roles()], Counter[str]()
        until = time.monotonic() + self.seconds
        while True:
            before = done.total()
            for role in roles:
                done[role.name] += role.run_once()
            if time.monotonic() >= until:
                return dict(done)
            if done.total() == before:
                time.sleep(PAUSE)

    def _answering(self, broker: Broker) -> list[Role]:
        """Answer check-back for groups whose producers are gone."""
        from txsaga.config import load

        for group, name in self.checkers.items():
            broker.answer_for(group, load(name, "checker"))
        return broker.own_roles() if self.checkers else []


class TaskRuns:
    """Look up runs of this Airflow from within a task (R5)."""

    def __init__(self, state: Callable[..., str], airflow: str = "") -> None:
        self._state, self._airflow = state, airflow

    def state(self, run: str) -> RunState:
        """Return the state of a run; one that can't be looked up does not count as over."""
        found = run_of(run)
        if found is None or found.airflow not in ("", self._airflow):
            return RunState.UNREACHABLE
        try:
            state = self._state(dag_id=found.dag, run_id=found.run)
        except AirflowRuntimeError as answer:
            if _is_gone(answer, found):
                return RunState.OVER
            raise
        return RunState.OVER if str(state) in ENDED else RunState.ALIVE


def _is_gone(answer: AirflowRuntimeError, run: RunOf) -> bool:
    """Return whether Airflow itself reports that it has no such run; a proxy's 404 is not enough."""
    detail = answer.error.detail or {}
    told = (detail.get("detail") or {}).get("detail") if isinstance(detail.get("detail"), dict) else None
    return (
        answer.error.error is ErrorType.API_SERVER_ERROR
        and detail.get("status_code") == HTTPStatus.NOT_FOUND
        and isinstance(told, dict)
        and told.get("message") == GONE.format(dag=run.dag, run=run.run)
    )


class CollectStaged(BaseOperator):
    """Remove what was staged for tables and will never be published."""

    ui_color = "#efe9dc"

    def __init__(self, *, store: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.store = store_of(store)

    def execute(self, context: Context) -> list[str]:
        """Remove it; return the paths."""
        kernel = AMBIENT.broker(self.store).kernel
        gone = [*kernel.rows.collect(), *kernel.tables.collect()]
        self.log.info("%d taken away", len(gone))
        return gone


def reached(store: str) -> Broker:
    """Open a store, with all databases that have unfinished work registered through the connections of their names."""
    broker = AMBIENT.reaching(store)
    for resource in broker.kernel.store.registry.enlisted():
        for connection in connections_of(resource.name):
            with suppress(ConfigError):  # no such connection: recovery reports that and continues with the others
                AMBIENT.broker(store, [connection])
                break
    return broker


COMMIT, ROLLBACK, AGAIN, LATER = "Commit", "Roll back", "Ask again", "Later"
DECISIONS = {COMMIT: Decision.COMMIT, ROLLBACK: Decision.ROLLBACK}
MOST = 50


class ListParked(BaseOperator):
    """List the transactions that need an operator, as arguments over which `SettleParked` is mapped."""

    ui_color = "#f3e3e0"

    def __init__(self, *, store: str | None = None, group: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.store, self.group = store_of(store), group

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Return them, oldest first."""
        overview = AMBIENT.broker(self.store).kernel.store.overview
        doubts = overview.doubts(limit=MOST, parked=True, group=self.group)
        return [
            {
                "transaction": str(doubt.txid),
                "subject": f"Transaction {doubt.txid} of {doubt.group} needs a decision",
                "body": f"key: {doubt.key or 'none'}\n\nwhy it is parked: {doubt.checks.parked}\n\n`txsaga tx show "
                f"{doubt.txid} --evidence` shows all details.",
            }
            for doubt in doubts
        ]


class SettleParked(HITLOperator):
    """Ask a person how to settle a parked transaction, as a required action in Airflow's list, and do so.

    An answer is recorded like any manual decision: with its reason, and never against what is known. Without an answer,
    the transaction stays parked.
    """

    template_fields = ("subject", "body", "transaction")

    def __init__(self, *, transaction: str, subject: str, store: str | None = None, **options: Any) -> None:
        reason = Param("", type="string", title="Reason", description="It is kept with the decision.")
        options.setdefault("params", {"reason": reason})
        super().__init__(subject=subject, options=[COMMIT, ROLLBACK, AGAIN, LATER], **options)
        self.transaction, self.store = transaction, store_of(store)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Settle the transaction as the person chose."""
        said = super().execute_complete(context, event)
        (choice,) = said["chosen_options"]
        by = said.get("responded_by_user") or {}
        who = f"{by.get('name') or by.get('id') or 'time-out'} by Airflow"
        reason = str((said.get("params_input") or {}).get("reason") or f"{choice}, by Airflow's required actions")
        with refused_for_good():
            self._settle(choice, who, reason)
        return {"transaction": self.transaction, "choice": choice, "who": who}

    def _settle(self, choice: str, who: str, reason: str) -> None:
        from txsaga.checkback.by_hand import ByHand

        hand, txid = ByHand(reached(self.store).kernel), int(self.transaction)
        if choice in DECISIONS:
            hand.decide(txid, DECISIONS[choice], who=who, why=reason)
        elif choice == AGAIN:
            hand.resume(txid, who=who, why=reason)


class Replay(BaseOperator):
    """Commit the messages of a rolled-back transaction in a new one, linked to it; a second run finds that one."""

    template_fields: Collection[str] = ("txid", "key", "why")

    def __init__(
        self,
        *,
        txid: int | str | Any,
        key: str | None = None,
        why: str = "replayed by task {{ ti.task_id }} of run {{ run_id }}",
        store: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.txid, self.key, self.why, self.store = txid, key, why, store_of(store)

    def execute(self, context: Context) -> dict[str, object]:
        """Replay the transaction."""
        with refused_for_good():
            txid = read_number(str(self.txid))
            if txid is None:
                raise ConfigError(f"txid is {self.txid!r}; give the number of a transaction")
            who = f"airflow:{context['ti'].dag_id}/{context['ti'].run_id}"
            done = AMBIENT.broker(self.store).replay(txid, key=self.key, who=who, why=self.why)
            return {"txid": done.txid, "replayed_as": done.replayed_as, "again": done.again}
