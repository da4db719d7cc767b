"""The plan that a hot session really uses for a statement, and how much each scan in it looked at.

The statement is prepared by the session itself, as the store does it, and explained by the name that the driver
gave it: what is shown is the cached generic plan, not one made for the occasion.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg import sql
from sqlalchemy import Engine

from txsaga.store.pipeline import PipelineConnection
from txsaga.store.statement import PreparedStatement

GROWING = re.compile(r"(half|op)_\d+|log|part|tx|effect|event|claim|scheduled|doubt|question|dead_letter|branch")
PREPARED = "SELECT name, parameter_types::text[], custom_plans FROM pg_prepared_statements WHERE statement ~ %s"


class Prepared:
    """One statement, prepared on a line of its own; the values of numbered parameters stand in their order."""

    def __init__(self, engine: Engine, statement: PreparedStatement | str, values: Mapping[str, object]) -> None:
        self.line, self._values = PipelineConnection(engine), values
        self._numbered = isinstance(statement, PreparedStatement)
        connection = self.line.connection()
        if isinstance(statement, PreparedStatement):
            self._statement = statement.sql
            self.line.wire.prepare(statement.call(*map(self._value, values)))
        else:
            self._statement = statement
            connection.execute(statement, values, prepare=True)

    def scans(self) -> list["Scan"]:
        """Run the statement under EXPLAIN, undo it, and return its scans of the growing tables."""
        connection = self.line.connection()
        names = list(self._values if self._numbered else dict.fromkeys(re.findall(r"%\((\w+)\)s", self._statement)))
        start = re.split(r"%|\$", self._statement)[0]
        rows = connection.execute(PREPARED, ["^" + re.escape(start)]).fetchall()
        ((name, types, custom),) = rows
        assert custom == 0, "this session makes a plan per call"
        arguments = [
            sql.SQL("CAST({} AS {})").format(sql.Literal(self._value(each)), sql.SQL(type))
            for each, type in zip(names, types, strict=True)
        ]
        explain = sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {}{}").format(
            sql.Identifier(name), sql.SQL("({})").format(sql.SQL(", ").join(arguments)) if arguments else sql.SQL("")
        )
        with connection.transaction(force_rollback=True):
            ((plans,),) = connection.execute(explain, prepare=False).fetchall()
        return list(scans_of(plans))

    def _value(self, name: str) -> object:
        """Return a value as it is sent: the form for one row takes plain values."""
        value = self._values[name]
        return value[0] if self._numbered and isinstance(value, list) and len(value) == 1 else value

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
