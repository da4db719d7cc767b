"""
Executes journalled statements on an open connection to any kind of database.

Each must change the recorded number of rows (R17): a statement that finds nothing to do has failed. Nothing is
committed here; the caller that opened the transaction ends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, StatementError

from txsaga.errors import OtherReason, RowsDiffer
from txsaga.evidence.driver_errors import code_of
from txsaga.flows.journal import read
from txsaga.flows.step_records import Journalled
from txsaga.resources.codes import of_code

_QUOTED = re.compile(r" (?:DETAIL|LINE \d+|CONTEXT|QUERY): | near [\"']")
_ENTRY = re.compile(r"Duplicate entry '.*'(?= for key)")


def do(connection: Connection, statements: Sequence[Journalled], place: str) -> None:
    """Execute statements in order; an error names the first that can't be done as recorded."""
    for statement in statements:
        try:
            with connection.execute(text(statement.text), read(statement.parameters)) as result:
                count = result.rowcount
        except StatementError as error:  # from the database, or for a missing or invalid value
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            raise of_code(code_of(error))(f"{named(statement, place)} can't be done: {_why(error)}") from error
        except UnicodeError as error:  # of a driver, for a character that its session can't send
            raise OtherReason(f"{named(statement, place)} can't be done: {error}") from error
        require_rows(statement, place, count)


def require_rows(statement: Journalled, place: str, count: int) -> None:
    """Raise `RowsDiffer` if a statement changed another number of rows than recorded."""
    if not statement.agrees(count):
        due = "at least one" if statement.rows is None else str(statement.rows)
        raise RowsDiffer(f"{named(statement, place)} changed {count} rows instead of {due}")


def named(statement: Journalled, place: str) -> str:
    """Name a statement for people: by its step, if it has one, and its place in the journal."""
    number = f"{statement.step}.{statement.seq}" if statement.step else str(statement.seq)
    return f"statement {number} of the journal for {place!r}"


def untold(why: str) -> str:
    """Remove what a server quotes of a statement or a row: it contains values, which are never shown."""
    return _ENTRY.sub("Duplicate entry", _QUOTED.split(" ".join(why.split()), maxsplit=1)[0])


def _why(error: StatementError) -> str:
    return untold(str(error.orig))
