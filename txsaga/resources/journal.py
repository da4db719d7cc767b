"""
Executes journalled statements on an open connection to any kind of database.

Each must change the recorded number of rows (R17): a statement that finds nothing to do has failed. Nothing is
committed here; the caller that opened the transaction ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Dialect, text
from sqlalchemy.exc import DBAPIError, StatementError

from txsaga.errors import OtherReason, RowsDiffer
from txsaga.evidence.driver_errors import code_of
from txsaga.flows.journal import of_short, read
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
        require_rows(statement, place, count)


class DriverStatement(NamedTuple):
    """A statement in the form that a driver reads."""

    text: str
    open: bool  # it has placeholders for values


class Writes(Protocol):
    """A session that renders values into statements."""

    @property
    def unwritable(self) -> tuple[type[Exception], ...]:
        """The errors it raises if that can't be done."""

    def literal(self, text: str, values: Mapping[str, object]) -> str:
        """Render values into a statement, as its driver does."""

    def encode(self, text: str) -> bytes:
        """Encode a text as it is sent."""


def forms(dialect: Dialect) -> Callable[[str], DriverStatement]:
    """Return a function that converts a statement with parameters written `:name` into its driver's form."""

    @of_short
    def formed(statement: str) -> DriverStatement:
        compiled = text(statement).compile(dialect=dialect)
        return (
            DriverStatement(str(compiled), True)
            if compiled.params
            else DriverStatement(str(compiled).replace("%%", "%"), False)
        )

    return formed


def rendered(session: Writes, statement: Journalled, form: DriverStatement, place: str) -> str:
    """Render a statement with its values, as it is sent."""
    try:
        whole = session.literal(form.text, read(statement.parameters)) if form.open else form.text
        session.encode(whole)
    except session.unwritable as error:
        raise OtherReason(f"{named(statement, place)} can't be done: {' '.join(str(error).split())}") from error
    return whole


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
