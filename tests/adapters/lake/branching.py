"""What another engine does on a branch: here it is PyIceberg."""

from datetime import date

from tests.adapters.lake.books import LEDGER, MONDAY, Books, rows
from txsaga.engine.table_branch import TableBranch


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
