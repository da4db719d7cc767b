"""Databases that come and go on a running PostgreSQL server."""

import secrets
from typing import LiteralString, Protocol

import psycopg
from psycopg import sql
from sqlalchemy import make_url


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


ROLLED_BACK: LiteralString = "select gid from pg_prepared_xacts where database = current_database()"
ENDED: LiteralString = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()"""
AS_MADE: LiteralString = """
select datacl is null and datconnlimit = -1 and not exists (select from pg_db_role_setting where setdatabase = d.oid)
       and not exists (select from pg_event_trigger) and not exists (select from pg_publication)
       and (select count(*) from pg_extension) = 1 and not exists (select from pg_largeobject_metadata)
       and not exists (select from pg_default_acl) and not exists (select from pg_foreign_data_wrapper)
  from pg_database d where datname = current_database()"""
EMPTIED: LiteralString = """
do $$ declare name text; begin
    for name in select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' loop
        execute 'drop schema ' || quote_ident(name) || ' cascade';
    end loop;
    create schema public authorization pg_database_owner;
    grant usage on schema public to public;
end $$"""


class LentDatabases:
    """Databases on one server that tests use one after the other, emptied in between: a drop is a checkpoint."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._empty: list[str] = []

    def take(self) -> str:
        """Return the name of an empty database."""
        if self._empty:
            return self._empty.pop()
        name = fresh_name("foreign")
        self._server.database(name)
        return name

    def give_back(self, name: str) -> None:
        """Empty a database for the next test; one that was altered is dropped."""
        with _outside_transactions(self._server.url(name)) as inside:
            _free(inside)
            if _value(inside, AS_MADE):
                inside.execute(EMPTIED)
                self._empty.append(name)
                return
        drop_database(self._server, name)


def drop_database(server: DatabaseServer, name: str) -> None:
    """Drop a database with everything that still holds it: sessions and prepared transactions."""
    with _outside_transactions(server.url(name)) as inside:
        _free(inside)
    with _outside_transactions(server.url("postgres")) as beside:
        beside.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def _free(inside: psycopg.Connection) -> None:
    """End what others left in a database: sessions and prepared transactions."""
    inside.execute(ENDED)
    for (gid,) in inside.execute(ROLLED_BACK).fetchall():
        inside.execute(sql.SQL("rollback prepared {}").format(gid))


def _value(inside: psycopg.Connection, question: LiteralString) -> object:
    row = inside.execute(question).fetchone()
    return row and row[0]


def _outside_transactions(url: str) -> psycopg.Connection:
    address = make_url(url).set(drivername="postgresql").render_as_string(False)
    return psycopg.connect(address, autocommit=True)
