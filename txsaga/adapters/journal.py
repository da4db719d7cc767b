"""
Doing journalled statements on an open connection, whatever database it leads to.

Each is held to the number of rows that it was to change (R17): a statement that finds nothing to do is no success. It
commits nothing; whoever opened the transaction ends it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from txsaga.errors.flows import RowsDiffer
from txsaga.errors.xa import OtherReason
from txsaga.model.flow_step import Journalled
from txsaga.model.journal import read


def do(connection: Connection, statements: Sequence[Journalled], place: str) -> None:
    """Do statements in their order; an error names the first that can't be done as it was recorded."""
    for statement in statements:
        try:
            with connection.execute(text(statement.text), read(statement.parameters)) as result:
                count = result.rowcount
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            raise OtherReason(f"{_named(statement, place)} can't be done: {_why(error)}") from error
        if not statement.agrees(count):
            due = "at least one" if statement.rows is None else str(statement.rows)
            raise RowsDiffer(f"{_named(statement, place)} changed {count} rows instead of {due}")


def _named(statement: Journalled, place: str) -> str:
    return f"statement {statement.step}.{statement.seq} of the journal for {place!r}"


def _why(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())
