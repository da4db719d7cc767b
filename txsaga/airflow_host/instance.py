"""
The name of an Airflow, by which several of them share a store: in the keys of transactions, and in the names of runs.

Two runs of two Airflows may have the same DAG and run id. Without names the one would join the transaction of the
other, and an engine would ask the wrong Airflow what became of a run. Whoever gives none is named by the address.
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from txsaga.config import AIRFLOW_NAME

logger = logging.getLogger("txsaga")
PREFIX = "airflow"


class RunOf(NamedTuple):
    """A run of an Airflow; one without a name belongs to whichever is asked."""

    airflow: str
    dag: str
    run: str


class Strangers:
    """Runs of other Airflows than the one that is known here; each of those is told of once."""

    def __init__(self, name: str, told: str) -> None:
        self._name, self._line = name, told  # with places for their Airflow and for this one
        self._told: set[str] = set()

    def __contains__(self, run: RunOf) -> bool:
        """Tell whether only an engine of another Airflow knows of a run."""
        if run.airflow in ("", self._name):
            return False
        if run.airflow not in self._told:
            self._told.add(run.airflow)
            line = f"{self._line}; if it is the same one, set %s alike for the engine and for Airflow"
            logger.warning(line, run.airflow, self._name, AIRFLOW_NAME.name)
        return True


def airflow_name(given: str | None, address: str | None) -> str:
    """Return the name that was given, or one made of the address; none without both."""
    if given:
        return AIRFLOW_NAME.read(AIRFLOW_NAME.name, given)
    parts = urlsplit(address or "")
    if not parts.hostname:
        return ""
    place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{place}{parts.path.rstrip('/')}")[:64]


def run_name(dag: str, run: str, airflow: str = "") -> str:
    """Return the name by which the host of a flow is asked about its run (R5): airflow@NAME:DAG/RUN."""
    return f"{PREFIX}@{airflow}:{dag}/{run}" if airflow else f"{PREFIX}:{dag}/{run}"


def run_of(name: str) -> RunOf | None:
    """Read such a name; None for a run of another host. Ids of DAGs hold no slash."""
    host, colon, rest = name.partition(":")
    prefix, _, airflow = host.partition("@")
    dag, slash, run = rest.partition("/")
    return RunOf(airflow, dag, run) if prefix == PREFIX and colon and slash else None
