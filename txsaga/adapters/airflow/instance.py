"""
The name of an Airflow, by which several of them share a store: in the keys of transactions, and in the names of runs.

Two runs of two Airflows may have the same DAG and run id. Without names the one would join the transaction of the
other, and an engine would ask the wrong Airflow what became of a run. Whoever gives none is named by the address.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from txsaga.errors import ConfigError

SETTING = "TXSAGA_AIRFLOW_NAME"
PREFIX = "airflow"
ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RunOf(NamedTuple):
    """A run of an Airflow; one without a name belongs to whichever is asked."""

    airflow: str
    dag: str
    run: str


def airflow_name(given: str | None, address: str | None) -> str:
    """Return the name that was given, or one made of the address; none without both."""
    if given:
        if not ALLOWED.fullmatch(given):
            raise ConfigError(f"{SETTING} is {given!r}; write up to 64 letters, digits, dots, hyphens and underscores")
        return given
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
