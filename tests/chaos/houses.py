"""Where a world keeps its books: a schema, a database or a file of its own, whatever the kind of database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, make_url, text

POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
SQLITE: Final = "sqlite"
SERVICE: Final = "service"
CLUSTER: Final = "cluster"

TABLES = (
    "CREATE TABLE debit (id text NOT NULL, half text)",  # nothing is unique here: what happens twice is seen twice
    "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)",
    "INSERT INTO account VALUES " + ", ".join(f"({id}, 0)" for id in range(20)),
)
OPENED: Mapping[str, str] = {POSTGRESQL: "CREATE SCHEMA {name}", MYSQL: "CREATE DATABASE {name}"}
CLOSED: Mapping[str, str] = {POSTGRESQL: "DROP SCHEMA {name} CASCADE", MYSQL: "DROP DATABASE {name}"}
UNLOCKED: Mapping[str, str] = {
    POSTGRESQL: "LOCK TABLE account, debit IN ACCESS EXCLUSIVE MODE NOWAIT",
    MYSQL: "SELECT * FROM account, debit FOR UPDATE NOWAIT",
    SQLITE: "UPDATE account SET balance = balance",
}
PREPARED: Mapping[str, str] = {
    POSTGRESQL: "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()",
    MYSQL: "XA RECOVER",
}


def kind_of(url: str) -> str:
    """Return the kind of a database."""
    return make_url(url).get_backend_name()


def place(url: str, name: str, folder: Path) -> str:
    """Return the URL of a world's own place in a database."""
    match kind_of(url):
        case "postgresql":
            return f"{url}?options=-csearch_path%3D{name}"
        case "mysql":
            return make_url(url).set(database=name).render_as_string(hide_password=False)
        case _:
            return f"sqlite:///{folder / 'books.db'}"


def open_place(connection: Connection, name: str) -> None:
    """Make the place, if it is not a file."""
    _run(OPENED, connection, name)


def open_books(connection: Connection) -> None:
    """Make the tables in a place."""
    for statement in TABLES:
        connection.execute(text(statement))


def close_place(connection: Connection, name: str) -> None:
    """Take the place away."""
    _run(CLOSED, connection, name)


def prepared(connection: Connection, store: str) -> list[str]:
    """Return what a database holds prepared for a store."""
    question = PREPARED.get(connection.dialect.name)
    rows = connection.exec_driver_sql(question).all() if question else []
    return [str(row) for row in rows if store in str(row)]


def lock_books(connection: Connection) -> None:
    """Take every lock that work in the books could still hold; raise where one is held."""
    connection.execute(text(UNLOCKED[connection.dialect.name]))
    connection.rollback()


def _run(statements: Mapping[str, str], connection: Connection, name: str) -> None:
    statement = statements.get(connection.dialect.name)
    if statement is not None:
        connection.execute(text(statement.format(name=name)))
