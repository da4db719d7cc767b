"""
The environment that every part of an Airflow gets from us.

A user's own AIRFLOW__… settings win, except for what the parts must agree on: address, database, keys. Measured: the
scheduler's idle sleep is the largest part of a task's latency; a worker's heartbeat below 5 s frees its slot sooner;
what a killed scheduler had queued would wait five minutes for the next scan; 32 workers, the default, are forked at
once and cost a gigabyte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from txsaga.airflow_host.home import LOGIN, AirflowHome, Keys
from txsaga.config import AIRFLOW_NAME, RESOURCE

MARK = "TXSAGA_HOST"
"""Set in every process of one host, with the path of its home: so no process is ever lost."""

STORE_OF_HOST = "TXSAGA_HOST_STORE"
EMBEDDED = "embedded"
"""The store is in the embedded server, whose address may change when it is started again."""

CONNECTION = "AIRFLOW_CONN_"
STORE = f"{CONNECTION}TXSAGA_DEFAULT"
TYPES = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}

DEFAULTS: Mapping[str, str] = {
    "CORE__PARALLELISM": "4",
    "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "CORE__TEST_CONNECTION": "Enabled",
    "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "5",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
    "API__WORKERS": "1",
    "LOGGING__LOGGING_LEVEL": "INFO",
    "USAGE_DATA_COLLECTION__ENABLED": "False",
}
"""Defaults for one machine; the user may override each."""


def environment(
    home: AirflowHome, keys: Keys, *, metadata: str, store: str | None, pg_home: Path, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the parts; without a store URL they use the embedded one."""
    defaults = {f"AIRFLOW__{name}": value for name, value in DEFAULTS.items()}
    agreed = {
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_FOLDER": keys.dags,
        "CORE__PLUGINS_FOLDER": str(home.root / "plugins"),
        "CORE__FERNET_KEY": keys.fernet,
        "CORE__EXECUTION_API_SERVER_URL": f"{keys.url()}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{LOGIN}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.passwords),
        "DATABASE__SQL_ALCHEMY_CONN": metadata.replace("postgresql://", "postgresql+psycopg://", 1),
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": metadata.replace("postgresql://", "postgresql+psycopg_async://", 1),
        "API__PORT": str(keys.port),
        "API__HOST": "127.0.0.1",
        "API__BASE_URL": keys.url(),
        "API__SECRET_KEY": keys.secret,
        "API_AUTH__JWT_SECRET": keys.jwt,
        "LOGGING__BASE_LOG_FOLDER": str(home.root / "logs"),
    }
    ours = {
        "AIRFLOW_HOME": str(home.root),
        "TXSAGA_PG_HOME": str(pg_home),
        "TXSAGA_AIRFLOW_URL": keys.url(login=True),
        AIRFLOW_NAME.name: AIRFLOW_NAME.of(given) or keys.name,
        MARK: str(home.root),
        "SPT_NOENV": "1",  # else processes that rename themselves lose the mark
    }
    kept = {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if store is not None:
        ours["TXSAGA_URL"] = store
    ours |= _connections(given)
    return defaults | kept | {f"AIRFLOW__{name}": value for name, value in agreed.items()} | ours


def _connections(given: Mapping[str, str]) -> dict[str, str]:
    """Return Airflow connections of the store and the resources: tasks and the engine use the same databases."""
    named: dict[str, dict[str, object]] = {STORE: {"conn_type": "txsaga"}}
    for name, url in given.items():
        if name.startswith(RESOURCE) and url:
            named[f"{CONNECTION}{name.removeprefix(RESOURCE)}"] = {
                "conn_type": TYPES.get(re.split(r"[+:]", url)[0], "generic"),
                "extra": {"sqlalchemy_url": url},
            }
    return {name: json.dumps(what) for name, what in named.items() if name not in given}
