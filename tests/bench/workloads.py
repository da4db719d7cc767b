"""The workloads: what they count, where they are, and which packages they need."""

from __future__ import annotations

from typing import NamedTuple

TIMES = ("s", "ms")
"""Units of which less is better."""


class Workload(NamedTuple):
    """What is measured, by which modules of this package, in this order."""

    unit: str
    modules: tuple[str, ...]
    needs: tuple[str, ...] = ()


WORKLOADS = {
    "W1": Workload("tx/s", ("w1",)),
    "W1L": Workload("tx/s", ("w1l",), ("greenlet",)),
    "W1b": Workload("messages/s", ("w1b",)),
    "W1c": Workload("ms", ("w1c",)),
    "W1d": Workload("messages/s", ("w1d", "w1d_work")),
    "W2": Workload("tx/s", ("w2",), ("greenlet",)),
    "W2r": Workload("s", ("w2r",)),
    "W3": Workload("s", ("w3",)),
    "W4": Workload("s", ("w4",), ("pyspark", "pyiceberg", "pyarrow")),
    "W4g": Workload("s", ("w4g",), ("great-expectations", "pyiceberg", "pyarrow")),
    "W5": Workload("s", ("w5",), ("apache-airflow",)),
    "W6": Workload("sagas/s", ("w6",)),
    "W7": Workload("s", ("w7",), ("pyspark",)),
    "W8": Workload("tx/s", ("w8",)),
    "W9": Workload("ms", ("w9",), ("fastapi", "uvicorn", "jinja2")),
    "W10": Workload("commits/s", ("w10",), ("fastapi", "uvicorn", "pyiceberg")),
}
