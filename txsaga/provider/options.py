"""
The section [txsaga] of Airflow's configuration: defaults for what a DAG does not set itself; and reading what it sets.

`AIRFLOW__TXSAGA__CONN_ID=orders` sets an option, as for any other Airflow option. The defaults are defined only here.
An invalid value raises an error with the option's name when the first task, sensor or trigger reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from txsaga.errors import ConfigError
from txsaga.flows.step import BUDGET

SECTION = "txsaga"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the section."""

    name: str
    default: str
    about: str
    type: str = "float"

    def text(self) -> str:
        """Return the value as text."""
        from airflow.sdk.configuration import conf

        return str(conf.get(SECTION, self.name, fallback=self.default))

    def number(self, *, least: float = 0.0) -> float:
        """Return the value as a number, not below `least`."""
        said = self.text()
        try:
            number = float(said)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            raise ConfigError(f"[{SECTION}] {self.name} is {said!r}; write a number from {least:g} on")
        return number

    def entry(self) -> dict[str, object]:
        """Return the entry that Airflow lists for this option."""
        return {
            "description": self.about,
            "version_added": "0.1.0",
            "type": self.type,
            "example": None,
            "default": self.default,
        }


CONN_ID = Option(
    name="conn_id",
    type="string",
    default="txsaga_default",
    about="The connection of the store, for tasks, sensors and assets that set none.",
)
LOOK_EVERY = Option(
    name="look_every",
    default="1.0",
    about="Seconds between two polls of a store by the triggerer, for all sensors and assets that wait there.",
)
STANDBY = Option(
    name="standby",
    default="20.0",
    about="Seconds that a starting task waits for an unavailable store before it fails and is retried.",
)
FLOW_LEASE = Option(
    name="flow_lease",
    default="60.0",
    about="Seconds without a heartbeat of a flow's tasks until Airflow is asked about its run.",
)
FLOW_BUDGET = Option(
    name="flow_budget",
    default=str(BUDGET.total_seconds()),
    about="Seconds that a step may hold its locks before it is reported.",
)
OPTIONS = (CONN_ID, LOOK_EVERY, STANDBY, FLOW_LEASE, FLOW_BUDGET)
RETRIES, RETRY_DELAY = 5, timedelta(seconds=10)


def store_of(said: str | None) -> str:
    """Return the connection of a store: the given one, otherwise the configured one."""
    return said or CONN_ID.text()


def every(said: float | None = None) -> float:
    """Return the seconds between two polls: the given ones, otherwise the configured ones."""
    return LOOK_EVERY.number(least=0.05) if said is None else said


def seconds_of(said: timedelta | None, option: Option) -> timedelta:
    """Return a duration: the given one, otherwise the configured one."""
    return timedelta(seconds=option.number(least=1.0)) if said is None else said


ADVICE = "give pendulum.datetime(…, tz=…), or a text like 2026-03-01T08:00:00+01:00"


def require_zone(moment: object, what: str) -> None:
    """Refuse a datetime without a time zone; texts are checked when they are rendered."""
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        raise ConfigError(f"{what} is {moment}, without a time zone; {ADVICE}")


def moment_of(said: object, what: str) -> datetime | None:
    """Parse a moment that was given as a datetime or a text."""
    if said is None or said == "":
        return None
    try:
        moment = datetime.fromisoformat(said) if isinstance(said, str) else said
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise ConfigError(f"{what} is {said!r}, which is not a time; {ADVICE}")
    require_zone(moment, what)
    return moment


def require_zones(options: Mapping[str, object], *names: str) -> None:
    """Refuse datetimes without a time zone among a DAG's options and its default_args."""
    tasks = options.get("default_args")
    for said, where in ((options, ""), (tasks if isinstance(tasks, Mapping) else {}, " in default_args")):
        for name in names:
            require_zone(said.get(name), f"{name}{where}")


def checker_name(checker: str | Callable[..., Any]) -> str:
    """Return the import path of a checker, as module:function; one that no other process can import is refused."""
    if isinstance(checker, str):
        if checker.count(":") != 1:
            raise ConfigError(f"checker {checker!r}: write module:function, of a module that others can import")
        return checker
    name = getattr(checker, "__qualname__", "")
    module = getattr(checker, "__module__", "")
    if not name.isidentifier() or module.startswith("unusual_prefix_"):
        raise ConfigError(
            f"checker {name or checker!r} is defined where other processes can't import it; put it into a module and "
            "write checker='module:function'"
        )
    return f"{module}:{name}"
