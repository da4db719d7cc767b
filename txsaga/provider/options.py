"""
The section [txsaga] of Airflow's configuration: what a DAG need not say each time. What a DAG says wins.

`AIRFLOW__TXSAGA__CONN_ID=orders` sets one, as any other of Airflow's. The defaults are here and nowhere else. A value
that is none is told when the first task, sensor or trigger reads it, with the name of the option.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from txsaga.errors import ConfigError
from txsaga.model.flow_step import BUDGET

SECTION = "txsaga"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the section."""

    name: str
    default: str
    about: str
    type: str = "float"
    added: str = "0.1.0"

    def text(self) -> str:
        """Read it."""
        from airflow.sdk.configuration import conf

        return str(conf.get(SECTION, self.name, fallback=self.default))

    def number(self, *, least: float = 0.0) -> float:
        """Read it as a number that is not below the least one."""
        said = self.text()
        try:
            number = float(said)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            raise ConfigError(f"[{SECTION}] {self.name} is {said!r}; write a number from {least:g} on")
        return number

    def entry(self) -> dict[str, object]:
        """Say of it what Airflow is told."""
        return {
            "description": self.about,
            "version_added": self.added,
            "type": self.type,
            "example": None,
            "default": self.default,
        }


CONN_ID = Option(
    name="conn_id",
    type="string",
    default="txsaga_default",
    about="The connection of the store, where a task, sensor or asset says none.",
)
LOOK_EVERY = Option(
    name="look_every",
    default="1.0",
    about="Seconds between two looks of the triggerer at a store, for all sensors and assets that wait there.",
)
STANDBY = Option(
    name="standby",
    default="20.0",
    about="Seconds that a task waits for a store that is down when it starts, before it fails and its retries wait on.",
)
FLOW_LEASE = Option(
    name="flow_lease",
    default="60.0",
    about="Seconds without a word from the tasks of a flow until its run is asked about: one that lives keeps it.",
)
FLOW_BUDGET = Option(
    name="flow_budget",
    default=str(BUDGET.total_seconds()),
    about="Seconds that a step may hold its locks before that is told of.",
)
OPTIONS = (CONN_ID, LOOK_EVERY, STANDBY, FLOW_LEASE, FLOW_BUDGET)


def store_of(said: str | None) -> str:
    """Return the connection of a store: the one that was said, or that of the section."""
    return said or CONN_ID.text()


def every(said: float | None = None) -> float:
    """Return the seconds between two looks: what was said, or that of the section."""
    return LOOK_EVERY.number(least=0.05) if said is None else said


def seconds_of(said: timedelta | None, option: Option) -> timedelta:
    """Return a time: the one that was said, or that of the section."""
    return timedelta(seconds=option.number(least=1.0)) if said is None else said
