"""
The folder of an Airflow that is started here, and the environment that every part of it gets from us.

The folder has its keys, its port, its logs, its supervisor's record. Keys and login are created once and kept, so that
a second start accepts the sessions of the first. The folder holds secrets and is readable by its owner alone. Damage is
reported and never repaired by guessing: new keys would make stored connections unreadable.

A user's own AIRFLOW__… settings win, except for what the parts must agree on: address, database, keys. Measured: the
scheduler's idle sleep is the largest part of a task's latency; a worker's heartbeat below 5 s frees its slot sooner;
what a killed scheduler had queued would wait five minutes for the next scan; 32 workers, the default, are forked at
once and cost a gigabyte.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from txsaga.config import AIRFLOW_HOME, AIRFLOW_NAME, RESOURCE
from txsaga.errors import HostFailed

SETTING = AIRFLOW_HOME.name
FIRST_PORT = 8080
LOGIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What a home keeps from start to start."""

    port: int
    dags: str
    password: str = field(repr=False)
    fernet: str = field(repr=False)
    jwt: str = field(repr=False)
    secret: str = field(repr=False)
    name: str = ""  # of this Airflow, where several share a store; the port may change

    @classmethod
    def new(cls, dags: Path) -> Keys:
        """Return new keys."""
        return cls(
            port=FIRST_PORT,
            dags=str(dags),
            password=secrets.token_urlsafe(12),
            fernet=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            jwt=secrets.token_urlsafe(32),
            secret=secrets.token_urlsafe(32),
            name=_new_name(),
        )

    def url(self, *, login: bool = False) -> str:
        """Return the address of the user interface; with login for programs."""
        return f"http://{f'{LOGIN}:{self.password}@' if login else ''}127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowHome:
    """The paths in that folder."""

    root: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> AirflowHome:
        """Read TXSAGA_AIRFLOW_HOME; the default depends on the account."""
        if (named := AIRFLOW_HOME.of(env)) is not None:
            return cls(root=named)
        if os.geteuid() == 0:
            return cls(root=Path("/var/lib/txsaga/airflow"))
        shared = env.get("XDG_DATA_HOME")
        return cls(root=(Path(shared) if shared else Path.home() / ".local" / "share") / "txsaga" / "airflow")

    @property
    def keys_file(self) -> Path:
        """The keys, kept from start to start."""
        return self.root / "keys.json"

    @property
    def record_file(self) -> Path:
        """The supervisor's record."""
        return self.root / "running.json"

    @property
    def logs(self) -> Path:
        """The folder of the parts' log files."""
        return self.root / "parts"

    @property
    def passwords(self) -> Path:
        """The file that Airflow's simple login reads."""
        return self.root / "passwords.json"

    def log_of(self, part: str) -> Path:
        """Return the log of a part."""
        return self.logs / f"{part}.log"

    def create(self) -> None:
        """Create the folder, for its owner alone; one that holds other things is left as it is."""
        try:
            self._require_own()
            for folder in (self.root, self.logs, self.root / "dags", self.root / "plugins"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(0o700)
        except OSError as failure:
            raise HostFailed(
                f"can't use {failure.filename} for Airflow ({failure.strerror}): set {SETTING} to a folder of your own"
            ) from failure

    def _require_own(self) -> None:
        try:
            found, others = self.root.stat(), {entry.name for entry in self.root.iterdir()}
        except FileNotFoundError:
            return
        ours = {self.logs.name, self.keys_file.name}
        if found.st_uid != os.geteuid() or (others - {"dags", "plugins"} and not others & ours):
            raise HostFailed(
                f"{self.root} is not an Airflow home of txsaga and is not empty: set {SETTING} to an empty "
                "or new folder"
            )

    def keys(self) -> Keys | None:
        """Return the keys; None if there are none yet."""
        try:
            text = self.keys_file.read_text("utf-8")
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise HostFailed(f"can't read {self.keys_file} ({failure.strerror}): run as the owner of it") from failure
        try:
            return Keys(**json.loads(text))
        except (ValueError, TypeError) as damage:
            raise HostFailed(
                f"{self.keys_file} is damaged: restore it from a backup, or delete {self.root} and start again "
                "(connections and variables stored in Airflow are then unreadable)"
            ) from damage

    def keep(self, keys: Keys) -> Keys:
        """Write the keys, and the login where Airflow reads it."""
        self.write(self.keys_file, asdict(keys))
        self.write(self.passwords, {LOGIN: keys.password})
        return keys

    def prepared(self, *, port: int | None = None, dags: Path | None = None) -> Keys:
        """Return the keys, created if necessary, with the given port and DAGs."""
        self.create()
        keys = self.keys() or Keys.new(self.root / "dags")
        keys = replace(keys, port=port or keys.port, name=keys.name or _new_name())
        return self.keep(keys if dags is None else replace(keys, dags=str(dags.absolute())))

    def write(self, path: Path, document: object) -> None:
        """Replace a file atomically; only its owner can read it."""
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        fresh.touch(0o600)
        fresh.write_text(json.dumps(document, indent=1), "utf-8")
        fresh.replace(path)


def _new_name() -> str:
    return f"host-{secrets.token_hex(4)}"


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
