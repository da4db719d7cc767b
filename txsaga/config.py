"""
Settings, read once from a mapping and checked on construction; nothing reads the environment at import.

    TXSAGA_URL               the home database; without it the embedded one is found or started
    TXSAGA_RESOURCE_<NAME>   the URL of a resource that holds evidence, under its lower-case name
    TXSAGA_BROKER_<NAME>     the URL of another store that takes part in two-phase commit, likewise
    TXSAGA_PARTICIPANT_<NAME>   a participant that is no database, as module:attribute
    TXSAGA_OBSERVERS         observers of facts as module:callable, separated by commas
    TXSAGA_SAGAS             modules that register functions of sagas, separated by commas
    TXSAGA_AUTO_CREATE       1 = topics are created by the first send to them
    TXSAGA_WAREHOUSE         where the files of tables lie: a folder or a URI; beside an embedded database by default
    TXSAGA_CATALOG           the name of the catalog of tables, for every engine that opens it: txsaga
    TXSAGA_AIRFLOW_URL       the Airflow that is asked what became of its runs, with login: http://user:password@host:port
    TXSAGA_AIRFLOW_NAME      the name of that Airflow, where several share a store: the same for it and for its engine
    TXSAGA_PG_HOME, _BIN, _USER   where the embedded database lives, its binaries, its account
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from txsaga.errors import ConfigError

RESOURCE = "TXSAGA_RESOURCE_"
BROKER = "TXSAGA_BROKER_"
PARTICIPANT = "TXSAGA_PARTICIPANT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to reach the home database and the resources."""

    url: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    brokers: Mapping[str, str] = field(default_factory=dict)
    participants: Mapping[str, str] = field(default_factory=dict)
    observers: tuple[str, ...] = ()
    sagas: tuple[str, ...] = ()
    auto_create: bool = False
    warehouse: str | None = None
    catalog: str = "txsaga"
    airflow: str | None = field(default=None, repr=False)
    airflow_name: str | None = None
    embedded: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings of an environment."""
        return cls(
            url=env.get("TXSAGA_URL") or None,
            resources=_named(RESOURCE, env),
            brokers=_named(BROKER, env),
            participants={
                name: _place(value, PARTICIPANT + name.upper()) for name, value in _named(PARTICIPANT, env).items()
            },
            observers=tuple(
                _place(name, "TXSAGA_OBSERVERS") for name in env.get("TXSAGA_OBSERVERS", "").split(",") if name
            ),
            sagas=tuple(filter(None, map(str.strip, env.get("TXSAGA_SAGAS", "").split(",")))),
            auto_create=_flag("TXSAGA_AUTO_CREATE", env.get("TXSAGA_AUTO_CREATE", "0")),
            warehouse=env.get("TXSAGA_WAREHOUSE") or None,
            catalog=env.get("TXSAGA_CATALOG") or "txsaga",
            airflow=env.get("TXSAGA_AIRFLOW_URL") or None,
            airflow_name=env.get("TXSAGA_AIRFLOW_NAME") or None,
            embedded={name: value for name, value in env.items() if name.startswith("TXSAGA_PG_")},
        )


def _named(prefix: str, env: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix).lower(): value for name, value in env.items() if name.startswith(prefix)}


def _place(name: str, setting: str) -> str:
    if name.count(":") != 1:
        raise ConfigError(f"{setting} holds {name!r}; write module:callable")
    return name.strip()


def _flag(name: str, value: str) -> bool:
    if value not in ("0", "1", "", "true", "false"):
        raise ConfigError(f"{name} is {value!r}; write 1 or 0")
    return value in ("1", "true")
