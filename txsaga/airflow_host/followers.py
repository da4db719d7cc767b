"""
The DAGs of an Airflow that follow flows: a commit triggers them by an event of each asset.

The last task of a flow creates its events as any task does, with its success. Only when the run is over are missing
events created by REST: so each event exists once, whichever process decided. If this process dies between creating an
event and recording that all exist, the events are searched again and none is created twice. An answer that is not
Airflow's counts as silence: trusting a proxy's answer would lose events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from txsaga.airflow_host.instance import Strangers, airflow_name, run_of
from txsaga.airflow_host.rest import Airflow
from txsaga.airflow_host.runs import AirflowRuns
from txsaga.checkback.runs import Runs, RunState
from txsaga.errors import HostFailed
from txsaga.flows.follow_up import SKEW, AssetName, FollowUp, carries

logger = logging.getLogger("txsaga")
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
            logger.warning("there is no asset %s in Airflow any more: nobody follows it", named.name or named.uri)
        for asset in missing:
            self._asked("POST", "assets/events", {"asset_id": asset, "extra": committed.extra()})
            logger.info("asset %d gets its event of transaction %d: its run is over", asset, committed.txid)
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
                raise HostFailed(f"what listens at {self._airflow.address} does not answer as Airflow does: no {key}")
            yield from page
            offset += PAGE
            if len(page) < PAGE:
                return

    def _asked(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = self._airflow.ask(method, path, body)
        if not isinstance(answer, dict):
            raise HostFailed(f"what listens at {self._airflow.address} does not answer as Airflow does to {path}")
        return answer


def airflow_at(url: str, name: str | None) -> tuple[AirflowRuns, AirflowFollowers]:
    """Return the runs and followers of an Airflow, by the given name or one derived from the address."""
    airflow, known = Airflow(url), airflow_name(name, url)
    runs = AirflowRuns(airflow, name=known)
    return runs, AirflowFollowers(airflow, runs, name=known)
