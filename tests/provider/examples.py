"""DAGs, loaded from their files as Airflow loads them: the examples, and those of other folders."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import DAG

FOLDER = Path(__file__).parents[2] / "dags"


def example(name: str, folder: Path = FOLDER) -> DAG:
    """Load the DAG of a file."""
    from airflow.sdk import DAG

    found: list[DAG] = []
    before = DAG.__exit__

    def left(self: DAG, *error: object) -> None:
        found.append(self)
        before(self, *error)  # type: ignore[no-untyped-call]

    DAG.__exit__ = left  # type: ignore[method-assign]
    try:
        spec = spec_from_file_location(f"dags_{name}", folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(module_from_spec(spec))
    finally:
        DAG.__exit__ = before  # type: ignore[method-assign]
    return next(each for each in found if each.dag_id == name)
