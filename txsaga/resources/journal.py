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
from txsaga.flows.journal import Journalled, read
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
            raise of_code(code_of(error))(f"{_named(statement, place)} can't be done: {_why(error)}") from error
        except UnicodeError as error:  # of a driver, for a character that its session can't send
            raise OtherReason(f"{_named(statement, place)} can't be done: {error}") from error
        if not statement.agrees(count):
            due = "at least one" if statement.rows is None else str(statement.rows)
            raise RowsDiffer(f"{_named(statement, place)} changed {count} rows instead of {due}")


def _named(statement: Journalled, place: str) -> str:
    """Name a statement for people: by its step, if it has one, and its place in the journal."""
    number = f"{statement.step}.{statement.seq}" if statement.step else str(statement.seq)
    return f"statement {number} of the journal for {place!r}"


def _why(error: StatementError) -> str:
    """Return what a server says, without what it quotes of a statement or a row: values are never shown."""
    return _ENTRY.sub("Duplicate entry", _QUOTED.split(" ".join(str(error.orig).split()), maxsplit=1)[0])
