"""The plan that a hot session really uses for a statement, and how much each scan in it looked at.

The statement is prepared by the session itself, as the store does it, and explained by the name that the driver
gave it: what is shown is the cached generic plan, not one made for the occasion.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql
from sqlalchemy import Engine

from txsaga.adapters.postgres.arrays import bools, byteas, int4s, int8s
from txsaga.adapters.postgres.connection import Line

BINARY: dict[str, Callable[[Any], object]] = {
    "txid": int8s,
    "pgroup": int4s,
    "token": byteas,
    "decision": int4s,
    "check": bools,
}
GROWING = re.compile(r"(half|op)_\d+|log|part|tx")
PREPARED = "SELECT name, parameter_types::text[], custom_plans FROM pg_prepared_statements WHERE statement ~ %s"


class Prepared:
    """One statement, prepared on a line of its own."""

    def __init__(self, engine: Engine, statement: str, values: Mapping[str, object]) -> None:
        self.line, self._statement, self._values = Line(engine), statement, values
        bound = {name: _bound(name, value) for name, value in values.items()}
        self.line.connection().execute(statement, bound, prepare=True)

    def scans(self) -> list["Scan"]:
        """Run the statement under EXPLAIN, undo it, and return its scans of the growing tables."""
        connection = self.line.connection()
        names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", self._statement)))
        rows = connection.execute(PREPARED, ["^" + re.escape(self._statement.split("%")[0])]).fetchall()
        ((name, types, custom),) = rows
        assert custom == 0, "this session makes a plan per call"
        arguments = [
            sql.SQL("CAST({} AS {})").format(sql.Literal(self._values[each]), sql.SQL(type))
            for each, type in zip(names, types, strict=True)
        ]
        explain = sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {}{}").format(
            sql.Identifier(name), sql.SQL("({})").format(sql.SQL(", ").join(arguments)) if arguments else sql.SQL("")
        )
        with connection.transaction(force_rollback=True):
            ((plans,),) = connection.execute(explain, prepare=False).fetchall()
        return list(scans_of(plans))

    def close(self) -> None:
        """Close the line."""
        self.line.close()


class Scan:
    """One scan of a partition of `half` or `op`, or of another table that grows."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.table: str = node["Relation Name"]
        self.kind: str = node["Node Type"]
        narrowed = [node.get("Index Cond"), node.get("Recheck Cond")]
        self.condition: str | None = next(filter(None, narrowed), None)
        self.loops: int = node["Actual Loops"]
        self.rows = round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * self.loops)

    @property
    def by_index(self) -> bool:
        """Whether an index leads to the rows."""
        return self.kind in ("Index Scan", "Index Only Scan", "Bitmap Heap Scan") and self.condition is not None

    def __repr__(self) -> str:
        """Show what a failed test wants to know."""
        return f"{self.kind} on {self.table} ({self.condition}): {self.rows} rows in {self.loops} loops"


def scans_of(plans: Sequence[dict[str, Any]]) -> Iterator[Scan]:
    """Find the scans of the growing tables anywhere in a plan."""
    for plan in plans:
        node = plan.get("Plan", plan)
        if node["Node Type"] != "ModifyTable" and GROWING.fullmatch(node.get("Relation Name", "")):
            yield Scan(node)
        yield from scans_of(node.get("Plans", []))


def _bound(name: str, value: object) -> object:
    return BINARY[name](value) if name in BINARY and isinstance(value, list) else value
