"""
Doing journalled statements on an open connection, whatever database it leads to.

Each is held to the number of rows that it was to change (R17): a statement that finds nothing to do is no success. It
commits nothing; whoever opened the transaction ends it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError, StatementError

from txsaga.adapters.evidence.answers import code_of
from txsaga.adapters.xa.codes import of_code
from txsaga.errors.flows import RowsDiffer
from txsaga.model.flow_step import Journalled
from txsaga.model.journal import read

_QUOTED = re.compile(r" (?:DETAIL|LINE \d+|CONTEXT|QUERY): | near [\"']")
_ENTRY = re.compile(r"Duplicate entry '.*'(?= for key)")


def do(connection: Connection, statements: Sequence[Journalled], place: str) -> None:
    """Do statements in their order; an error names the first that can't be done as it was recorded."""
    for statement in statements:
        try:
            with connection.execute(text(statement.text), read(statement.parameters)) as result:
                count = result.rowcount
        except StatementError as error:  # of the database, or of a value that is missing or is none
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                raise
            raise of_code(code_of(error))(f"{named(statement, place)} can't be done: {_why(error)}") from error
        require_rows(statement, place, count)


def require_rows(statement: Journalled, place: str, count: int) -> None:
    """Raise `RowsDiffer` where a statement changed another number of rows than it was to."""
    if not statement.agrees(count):
        due = "at least one" if statement.rows is None else str(statement.rows)
        raise RowsDiffer(f"{named(statement, place)} changed {count} rows instead of {due}")


def named(statement: Journalled, place: str) -> str:
    """Name a statement as people find it: by its step, if it has one, and its place in the journal."""
    number = f"{statement.step}.{statement.seq}" if statement.step else str(statement.seq)
    return f"statement {number} of the journal for {place!r}"


def untold(why: str) -> str:
    """Leave out what a server quotes of a statement or a row: values stand in it that are never shown."""
    return _ENTRY.sub("Duplicate entry", _QUOTED.split(" ".join(why.split()), maxsplit=1)[0])


def _why(error: StatementError) -> str:
    return untold(str(error.orig))
