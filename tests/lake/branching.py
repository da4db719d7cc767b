"""What another engine does on a branch: here it is PyIceberg."""

from dataclasses import dataclass
from datetime import date

from tests.lake.books import LEDGER, MONDAY, Books, rows
from txsaga.lake.table import BranchStart, TableName
from txsaga.lake.table_writes import TableBranch


class Refused(Exception):
    """What the user's own code raises."""


def add(books: Books, branch: TableBranch, *ids: int, day: date = MONDAY) -> None:
    """Append as another engine does."""
    table = books.table(str(branch.name))
    table.append(rows(*ids, day=day).cast(table.schema().as_arrow()), branch=branch.branch)


def delete(books: Books, branch: TableBranch, *ids: int) -> None:
    """Delete as another engine does: files are written anew."""
    said = ", ".join(map(str, ids))
    books.table(str(branch.name)).delete(f"id IN ({said})", branch=branch.branch)


def branches(books: Books, name: str = LEDGER) -> set[str]:
    return set(books.table(name).metadata.refs) - {"main"}


@dataclass
class Session:
    """A session of an engine in which every statement adds entry 7: what it looked for was not there."""

    books: Books
    application: str = "app-1"


class SessionWriter:
    """What writes to branches by such a session."""

    def __init__(self, session: Session) -> None:
        self._session, self._start = session, list[BranchStart]()
        self.application = session.application

    def require_able(self, name: TableName) -> None:
        """Any is."""

    def open(self, start: BranchStart) -> None:
        self._start[:] = [start]

    def close(self) -> None:
        """Nothing was set."""

    def identifier(self, start: BranchStart) -> str:
        return start.branch

    def sql(self, statement: str, args: object) -> None:
        (start,) = self._start
        table = self._session.books.table(str(start.table))
        table.append(rows(7).cast(table.schema().as_arrow()), branch=start.branch)
