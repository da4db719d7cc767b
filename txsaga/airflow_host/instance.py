"""
The name of an Airflow, by which several share a store: part of the keys of transactions and of the names of runs.

Two runs of two Airflows may have the same DAG and run id. Without names one would join the transaction of the other,
and an engine would ask the wrong Airflow about a run. An Airflow without a set name is named by its address.
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
    """A run of an Airflow; one without a name belongs to any Airflow that is asked."""

    airflow: str
    dag: str
    run: str


class Strangers:
    """Runs of other Airflows than this one; each of those Airflows is logged once."""

    def __init__(self, name: str, told: str) -> None:
        self._name, self._line = name, told  # a format with the other Airflow and this one
        self._told: set[str] = set()

    def __contains__(self, run: RunOf) -> bool:
        """Return whether only an engine of another Airflow knows a run."""
        if run.airflow in ("", self._name):
            return False
        if run.airflow not in self._told:
            self._told.add(run.airflow)
            line = f"{self._line}; if both are the same Airflow, set the same %s for the engine and Airflow"
            logger.warning(line, run.airflow, self._name, AIRFLOW_NAME.name)
        return True


def airflow_name(given: str | None, address: str | None) -> str:
    """Return the given name, or one derived from the address; empty without both."""
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
    """Parse such a name; None for a run of another host. Ids of DAGs contain no slash."""
    host, colon, rest = name.partition(":")
    prefix, _, airflow = host.partition("@")
    dag, slash, run = rest.partition("/")
    return RunOf(airflow, dag, run) if prefix == PREFIX and colon and slash else None
