"""
The states of an Airflow's runs, requested before their transactions are judged (R5).

A run whose Airflow does not answer never counts as over: a run that is only slow must not be rolled back. While Airflow
is silent, it is not asked again for each of a thousand transactions. A run that Airflow no longer knows is over: it was
deleted. No answer of Airflow ever commits anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from txsaga.airflow_host.instance import Strangers, run_of
from txsaga.airflow_host.rest import Airflow
from txsaga.checkback.runs import RunState
from txsaga.errors import HostFailed

logger = logging.getLogger("txsaga")
SILENCE = 10.0
"""Seconds without further requests after a missing answer."""
FRESH = 2.0
ENDED = frozenset({"success", "failed"})


class AirflowRuns:
    """The runs of one Airflow, by its name."""

    def __init__(self, airflow: Airflow, *, name: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._airflow, self._clock = airflow, clock
        self._strangers = Strangers(
            name, "nobody can say whether runs of Airflow %r are alive: this engine asks Airflow %r"
        )
        self._silent_until = clock()
        self._known: dict[str, tuple[float, RunState]] = {}

    def state(self, run: str) -> RunState:
        """Return the state of a run; runs of other hosts are unreachable here."""
        named = run_of(run)
        if named is None or named in self._strangers or self._clock() < self._silent_until:
            return RunState.UNREACHABLE
        since, state = self._known.get(run, (0.0, RunState.UNREACHABLE))
        if self._clock() - since < FRESH and run in self._known:
            return state
        return self._remember(run, self._ask(named.dag, named.run))

    def _ask(self, dag: str, id: str) -> RunState:
        try:
            found = self._airflow.run(dag, id)
        except HostFailed as silent:
            logger.warning("nobody is asked for %.0f s whether runs are alive: %s", SILENCE, silent)
            self._silent_until = self._clock() + SILENCE
            return RunState.UNREACHABLE
        return RunState.OVER if found is None or found.get("state") in ENDED else RunState.ALIVE

    def _remember(self, run: str, state: RunState) -> RunState:
        now = self._clock()
        self._known = {name: kept for name, kept in self._known.items() if now - kept[0] < FRESH}
        self._known[run] = (now, state)
        return state
