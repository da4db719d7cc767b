"""A small world for one run of a scenario: a fresh store, a bank in another database, and a folder for notes.

Nothing of one world is seen in another, so a point that fails spoils no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from tests.chaos.houses import close_place, open_books, open_place, place
from tests.resources.callables.service import SECRET
from tests.services.databases import fresh_name
from txsaga import HttpService
from txsaga.wiring.connecting import open_store

BANK = "bank"
MORTGAGE = "mortgage"
TILL = "till"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where one run of a scenario happens."""

    name: str
    home_database: str
    bank_database: str
    folder: Path
    branches: Mapping[str, str] = field(default_factory=dict)
    """More databases that books are kept in, by the names of their resources."""
    till: str = ""
    """Where a service listens that takes part; it keeps what it did in this world's folder."""
    brokers: Mapping[str, str] = field(default_factory=dict)
    """The databases of brokers that take part, by their names."""

    @property
    def home(self) -> str:
        """The URL of the store."""
        return f"{self.home_database}?namespace={self.name}"

    @property
    def stores(self) -> dict[str, str]:
        """The URLs of the brokers that take part."""
        return {name: f"{url}?namespace={self.name}_{name}" for name, url in self.brokers.items()}

    @property
    def services(self) -> dict[str, HttpService]:
        """The services that take part, by name."""
        if not self.till:
            return {}
        at = self.till
        return {TILL: HttpService(try_=f"{at}/try", confirm=f"{at}/confirm", cancel=f"{at}/cancel", secret=SECRET)}

    @property
    def bank(self) -> str:
        """The URL of the bank, whose tables lie in a schema of this world alone."""
        return self.resources[BANK]

    @property
    def resources(self) -> dict[str, str]:
        """The URLs of all places that books are kept in."""
        found = {BANK: self.bank_database, **self.branches}
        return {resource: place(url, self.name, self.folder) for resource, url in found.items()}

    def note(self, kind: str, line: str) -> None:
        """Write a line down; it outlives a kill."""
        with (self.folder / kind).open("a") as file:
            file.write(f"{line}\n")

    def notes(self, kind: str) -> list[str]:
        """Read the lines of a kind."""
        path = self.folder / kind
        return path.read_text().splitlines() if path.exists() else []

    def let_leases_run_out(self) -> None:
        """Let so much time pass that nobody who died holds anything any more."""
        moments = (("lease", "until"), ("question", "asked"), ("question", "until"), ("doubt", "check_at"))
        stood = (("tx", "touched"), ("branch", "at"), ("saga", "until"))
        homes = [(self.home_database, self.name)]
        homes += [(url, f"{self.name}_{name}") for name, url in self.brokers.items()]
        for url, schema in homes:
            with database(url) as engine, engine.begin() as connection:
                for table, column in (*moments, *stood):
                    passed = f"UPDATE {schema}.{table} SET {column} = {column} - interval '1 hour'"
                    connection.execute(text(passed))

    def debits(self) -> list[str]:
        """Read the debits of the bank, sorted."""
        with database(self.bank) as engine, engine.connect() as connection:
            return sorted(connection.execute(text("SELECT id FROM debit")).scalars())


def debit(connection: Connection, id: str, half: str | None = None) -> None:
    """Take money from an account: one row."""
    connection.execute(text("INSERT INTO debit VALUES (:id, :half)"), {"id": id, "half": half})


@contextmanager
def database(url: str) -> Iterator[Engine]:
    """Open a database for a moment."""
    engine = create_engine(url, poolclass=NullPool)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def fresh_world(
    home_database: str,
    bank_database: str,
    folder: Path,
    branches: Mapping[str, str] | None = None,
    *,
    till: str = "",
    brokers: Mapping[str, str] | None = None,
) -> Iterator[World]:
    """Make a world; it is taken away again unless something in it went wrong."""
    name = fresh_name("w")
    world = World(
        name=name,
        home_database=home_database,
        bank_database=bank_database,
        folder=folder / name,
        branches=branches or {},
        till=till,
        brokers=brokers or {},
    )
    world.folder.mkdir()
    for store in (world.home, *world.stores.values()):
        open_store(store).close()
    books = (bank_database, *world.branches.values())
    for url in books:
        with database(url) as engine, engine.begin() as connection:
            open_place(connection, name)
    for url in world.resources.values():
        with database(url) as engine, engine.begin() as connection:
            open_books(connection)
    yield world
    for url in (home_database, *books):
        with database(url) as engine, engine.begin() as connection:
            close_place(connection, name)
    for broker, url in world.brokers.items():
        with database(url) as engine, engine.begin() as connection:
            close_place(connection, f"{name}_{broker}")
