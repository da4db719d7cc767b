"""
An Airflow as an engine sees it: the states of its runs (R5), and the DAGs that follow flows by events of assets.

A run whose Airflow does not answer never counts as over: a run that is only slow must not be rolled back. While Airflow
is silent, it is not asked again for each of a thousand transactions. A run that Airflow no longer knows is over: it was
deleted. No answer of Airflow ever commits anything.

The last task of a flow creates its events as any task does, with its success. Only when the run is over are missing
events created by REST: so each event exists once, whichever process decided. If this process dies between creating an
event and recording that all exist, the events are searched again and none is created twice. An answer that is not
Airflow's counts as silence: trusting a proxy's answer would lose events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from txsaga.airflow_host.followers import SKEW, AssetName, FollowUp, carries
from txsaga.airflow_host.instance import Strangers, airflow_name, run_of
from txsaga.airflow_host.rest import Airflow
from txsaga.checkback.runs import Runs, RunState
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
        self._strangers = Strangers(name, "runs of Airflow %r can't be checked: this engine asks Airflow %r")
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
            logger.warning("Airflow is not asked about runs for %.0f s: %s", SILENCE, silent)
            self._silent_until = self._clock() + SILENCE
            return RunState.UNREACHABLE
        return RunState.OVER if found is None or found.get("state") in ENDED else RunState.ALIVE

    def _remember(self, run: str, state: RunState) -> RunState:
        now = self._clock()
        self._known = {name: kept for name, kept in self._known.items() if now - kept[0] < FRESH}
        self._known[run] = (now, state)
        return state


PAGE = 100
LEFT = "asset events of Airflow %r are left to its own engine: this one knows Airflow %r"


class AirflowFollowers:
    """The followers in one Airflow, by its name."""

    def __init__(self, airflow: Airflow, runs: Runs, *, name: str = "") -> None:
        self._airflow, self._runs, self.name = airflow, runs, name
        self._strangers = Strangers(name, LEFT)

    def tell(self, committed: FollowUp, since: datetime) -> bool:
        """Create the missing events once the run is over."""
        run = run_of(committed.run)
        if run is None or run in self._strangers:
            return True  # of another host, which has a group of its own
        over = self._runs.state(committed.run) is RunState.OVER  # read first: the search then sees all its events
        found = {each: self._asset(each) for each in committed.assets}
        unknown = [each for each, asset in found.items() if asset is None]
        missing = [each for each in found.values() if each is not None and not self._is_told(each, committed.id, since)]
        if not over:
            return not missing and not unknown
        for named in unknown:
            logger.warning("asset %s no longer exists in Airflow: no event is created", named.name or named.uri)
        for asset in missing:
            self._asked("POST", "assets/events", {"asset_id": asset, "extra": committed.extra()})
            logger.info("created the event of asset %d for transaction %d, whose run is over", asset, committed.txid)
        return True

    def _asset(self, named: AssetName) -> int | None:
        """Return the number of an asset; None if no DAG has it any more."""
        asked = {"uri_pattern": named.uri} if named.name is None else {"name_pattern": named.name}
        for found in self._pages("assets", "assets", {name: text for name, text in asked.items() if text}):
            if named.name in (None, found["name"]) and named.uri in (None, found["uri"]):
                return int(found["id"])
        return None

    def _is_told(self, asset: int, id: str, since: datetime) -> bool:
        asked = {"asset_id": str(asset), "timestamp_gte": (since - SKEW).isoformat(), "order_by": "-timestamp"}
        found = self._pages("assets/events", "asset_events", asked)
        return any(carries(each.get("extra"), id) for each in found)

    def _pages(self, path: str, key: str, asked: dict[str, str]) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            query = urlencode({**asked, "limit": PAGE, "offset": offset})
            page = self._asked("GET", f"{path}?{query}").get(key)
            if not isinstance(page, list):
                raise HostFailed(f"the server at {self._airflow.address} does not answer like Airflow: no {key}")
            yield from page
            offset += PAGE
            if len(page) < PAGE:
                return

    def _asked(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = self._airflow.ask(method, path, body)
        if not isinstance(answer, dict):
            raise HostFailed(f"the server at {self._airflow.address} does not answer like Airflow to {path}")
        return answer


def airflow_at(url: str, name: str | None) -> tuple[AirflowRuns, AirflowFollowers]:
    """Return the runs and followers of an Airflow, by the given name or one derived from the address."""
    airflow, known = Airflow(url), airflow_name(name, url)
    runs = AirflowRuns(airflow, name=known)
    return runs, AirflowFollowers(airflow, runs, name=known)
