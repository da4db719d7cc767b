"""
Settings, read once from a mapping and checked on construction; nothing reads the environment at import.

    TXSAGA_URL               the home database; without it the embedded one is found or started
    TXSAGA_RESOURCE_<NAME>   the URL of a resource that holds evidence, under its lower-case name
    TXSAGA_BROKER_<NAME>     the URL of another store that takes part in two-phase commit, likewise
    TXSAGA_PARTICIPANT_<NAME>   a participant that is no database, as module:attribute
    TXSAGA_OBSERVERS         observers of facts as module:callable, separated by commas
    TXSAGA_AUTO_CREATE       1 = topics are created by the first send to them
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
    auto_create: bool = False
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
            auto_create=_flag("TXSAGA_AUTO_CREATE", env.get("TXSAGA_AUTO_CREATE", "0")),
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
