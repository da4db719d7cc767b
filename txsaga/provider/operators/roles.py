"""
The engine as a task, where no `txsaga engine` runs: every role does rounds until the task's time is over.

Any number of these tasks and engines can run at once: each role takes a lease, or is safe to run twice. If neither ever
runs, messages get no offsets and transactions whose owner died stay undecided.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from txsaga.airflow_host.instance import RunOf, run_of
from txsaga.checkback.runs import RunState
from txsaga.errors import ConfigError
from txsaga.provider.ambient import AMBIENT
from txsaga.provider.checking import checker_name
from txsaga.provider.options import store_of
from txsaga.provider.reaching import connections_of
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
            worked = {role.name: role.run_once() for role in roles}
            done.update(worked)
            if time.monotonic() >= until:
                return dict(done)
            if not any(worked.values()):
                time.sleep(PAUSE)

    def _answering(self, broker: Broker) -> list[Role]:
        """Answer check-back for groups whose producers are gone."""
        from txsaga.wiring.connecting import load

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

    def __init__(self, *, store: str | None = None, only_show: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.store, self.only_show = store_of(store), only_show

    def execute(self, context: Context) -> list[str]:
        """Remove it; return the paths."""
        kernel = AMBIENT.broker(self.store).kernel
        gone = [*kernel.rows.collect(dry_run=self.only_show), *kernel.tables.collect(dry_run=self.only_show)]
        self.log.info("%d %s", len(gone), "would go" if self.only_show else "taken away")
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
