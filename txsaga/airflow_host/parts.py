"""
The parts that make up an Airflow with txsaga, and the commands that run them.

The supervisor and `docker-compose.yml` run the same parts: there is no other list.
"""

from __future__ import annotations

from enum import StrEnum

UNSERVED = ("--skip-serve-logs",)
"""All parts share a folder of logs: a log server would listen on every address of the machine."""


class AirflowPart(StrEnum):
    """A process of its own."""

    API_SERVER = "api-server"
    SCHEDULER = "scheduler"
    DAG_PROCESSOR = "dag-processor"
    TRIGGERER = "triggerer"
    ENGINE = "engine"

    @property
    def is_airflow(self) -> bool:
        """Return whether it is one of Airflow's own."""
        return self is not AirflowPart.ENGINE

    @property
    def command(self) -> tuple[str, ...]:
        """Its command, as a list of arguments."""
        if not self.is_airflow:
            return ("txsaga", "engine")
        return ("airflow", self.value, *(UNSERVED if self in (AirflowPart.SCHEDULER, AirflowPart.TRIGGERER) else ()))


SHARED_LOG = "supervisor"
"""The log of everything else."""
