"""Databases that come and go on a running PostgreSQL server."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Connection, NullPool, create_engine, text


class DatabaseServer(Protocol):
    """What a test may ask of a PostgreSQL server."""

    def url(self, database: str) -> str:
        """Return the SQLAlchemy URL of a database."""
        ...

    def database(self, name: str) -> object:
        """Create a database if it is not there yet."""
        ...


def fresh_name(prefix: str) -> str:
    """Return a name that no other test has."""
    return f"{prefix}_{secrets.token_hex(6)}"


def drop_database(server: DatabaseServer, name: str) -> None:
    """Drop a database with everything that still holds it: sessions and prepared transactions."""
    with _outside_transactions(server.url(name)) as inside:
        held = inside.execute(text("select gid from pg_prepared_xacts where database = current_database()"))
        for gid in held.scalars().all():
            inside.exec_driver_sql("rollback prepared '{}'".format(gid.replace("'", "''")))
    with _outside_transactions(server.url("postgres")) as beside:
        beside.exec_driver_sql(f'drop database if exists "{name}" with (force)')


@contextmanager
def _outside_transactions(url: str) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
