"""`txsaga db`: the embedded database, databases of its server, and schema, rights and identity of a home database."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import home_url
from txsaga.cli.options import Options, options_of
from txsaga.cli.printing import document, fields, listing, progress, result
from txsaga.config import Settings, with_namespace
from txsaga.errors import ConfigError, IdentityChanged, RightsMissing
from txsaga.store.right import Right

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from txsaga.embedded.server import EmbeddedServer

app = typer.Typer(help="Manage the embedded database, and the schema and rights of a home database.")
DATABASE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
Which = Annotated[Right, typer.Argument(help="Name of the right.")]
Printed = Annotated[bool, typer.Option("--print", help="Only print the SQL, for an administrator to run.")]


@app.command()
def start(context: typer.Context) -> None:
    """Start the embedded database if it is not running."""
    from txsaga.embedded.probe import DATABASE

    options = options_of(context)
    server = _embedded(options).ensure()
    server.database(DATABASE)
    _show_status(server, options)


@app.command()
def stop(context: typer.Context) -> None:
    """Stop the embedded database. Clients lose their connections."""
    options = options_of(context)
    server = _embedded(options)
    server.stop()
    _show_status(server, options)


@app.command()
def status(context: typer.Context) -> None:
    """Show whether the embedded database is running, and its folder."""
    options = options_of(context)
    _show_status(_embedded(options), options)


@app.command()
def url(
    context: typer.Context,
    jdbc: Annotated[bool, typer.Option("--jdbc", help="Print a JDBC URL, without user and password.")] = False,
    socket: Annotated[bool, typer.Option("--socket", help="Connect through the Unix socket.")] = False,
) -> None:
    """Print the URL of the embedded database, with its password. Starts the database if it is not running."""
    from txsaga.embedded.probe import DATABASE

    options = options_of(context)
    if jdbc and socket:
        raise typer.BadParameter("JDBC can't use a unix socket; leave one of them out", param_hint="--socket")
    address = _embedded(options).ensure().url(DATABASE, "jdbc" if jdbc else None, socket=socket)
    address = address if jdbc else with_namespace(address, options.namespace)
    result(options, {"url": address}, address)


@app.command()
def create(context: typer.Context, name: Annotated[str, typer.Argument(help="The name of the database.")]) -> None:
    """Create a database on the server of the home database, unless it exists; print its URL, with its password."""
    import psycopg

    from txsaga.embedded.probe import create_database
    from txsaga.store.connection import parse_url, translating

    options = options_of(context)
    if not DATABASE_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r} is not a database name; use 1 to 63 lower-case letters, digits and _")
    address, _ = parse_url(home_url(options))
    server = address.set(drivername="postgresql").render_as_string(hide_password=False)
    with translating(), psycopg.connect(server, autocommit=True) as connection:
        create_database(connection, name)
    found = address.set(database=name).render_as_string(hide_password=False)
    result(options, {"url": found}, found)


@app.command()
def reset(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm that all data is deleted.")] = False,
) -> None:
    """Stop the embedded database and DELETE ITS DATA. Files of tables in its folder `warehouse` stay."""
    options = options_of(context)
    server = _embedded(options)
    if not yes:
        raise typer.BadParameter(f"this deletes all data in {server.home}; pass --yes to confirm")
    server.reset()
    _show_status(server, options)


@app.command()
def migrate(context: typer.Context) -> None:
    """Create the schema of the home database, or upgrade it to the version of this program."""
    from txsaga.store import migrate as schema
    from txsaga.store.connection import make_engine, parse_url

    options = options_of(context)
    address, namespace = parse_url(home_url(options))
    engine = make_engine(address, namespace)
    try:
        with progress(f"migrating {namespace}", quiet=options.json):
            before = schema.migrate(engine, namespace)
    finally:
        engine.dispose()
    after = schema.newest()
    done = f"went from schema {before or 'none'} to {after}"
    told = f"namespace {namespace} {f'has schema {after} already' if before == after else done}"
    result(options, {"namespace": namespace, "before": before, "after": after}, told)


@app.command()
def adopt(
    context: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Also if it belongs to this server already.")] = False,
) -> None:
    """Accept this server as the store's home after a restore or failover. Ids from before become invalid."""
    from txsaga.store import founding

    options = options_of(context)
    with _opened(options) as (connection, namespace):
        try:
            known = founding.recognise(connection)
        except IdentityChanged:
            known = None
        if known is not None and not force:
            raise ConfigError(f"store {known} already belongs to this server; if it was restored, pass --force")
        identity = founding.adopt(connection, namespace)
    told = f"store {identity.uuid} is at home here as incarnation {identity.incarnation}; restart its engines"
    result(options, {"uuid": identity.uuid, "incarnation": identity.incarnation}, told)


@app.command()
def rights(context: typer.Context) -> None:
    """List roles with their rights, how they got each right, and the producer groups reserved for them."""
    from txsaga.store.granting import holders

    options = options_of(context)
    with _opened(options) as (connection, namespace):
        found = holders(connection, namespace)
    rows = [(holder.role, holder.right, holder.through, ", ".join(holder.groups)) for holder in found]
    columns = ("role", "right", "through", "producer groups")
    listing(options, [holder._asdict() for holder in found], columns, rows)


@app.command()
def grant(
    context: typer.Context,
    right: Which,
    to: Annotated[str, typer.Option(help="Role to grant the right to: a login, or a group of logins.")],
    group: Annotated[
        list[str] | None, typer.Option(help="Producer group to reserve for this role; may be repeated.")
    ] = None,
    printed: Printed = False,
) -> None:
    """Grant a right to a role: producer, consumer, operator or engine."""
    from txsaga.store import granting

    groups = group or []
    if groups and right is not Right.PRODUCER:
        raise typer.BadParameter("only the right producer takes producer groups", param_hint="--group")
    _change(
        context, lambda connection, namespace: granting.grant(connection, namespace, right, to, groups), printed=printed
    )


@app.command()
def revoke(
    context: typer.Context,
    right: Which,
    role: Annotated[str, typer.Option("--from", help="Role to revoke the right from.")],
    printed: Printed = False,
) -> None:
    """Revoke a right from a role."""
    from txsaga.store import granting

    _change(context, lambda connection, namespace: granting.revoke(connection, namespace, right, role), printed=printed)


def _change(context: typer.Context, write: Callable[[Connection, str], Sequence[str]], *, printed: bool) -> None:
    from txsaga.store import granting

    options = options_of(context)
    with _opened(options) as (connection, namespace):
        if not granting.login(connection, namespace).owner:
            raise RightsMissing(
                f"only the owner of namespace {namespace!r} may change rights there; connect as its owner"
            )
        statements = write(connection, namespace)
        if not printed:
            granting.run(connection, statements)
    sql = "\n".join(f"{statement};" for statement in statements)
    told = sql if printed else f"done in namespace {namespace}; see `txsaga db rights`"
    result(options, {"namespace": namespace, "done": not printed, "statements": statements}, told)


@contextmanager
def _opened(options: Options) -> Iterator[tuple[Connection, str]]:
    """Give a connection to the home database and its namespace, which has this program's schema."""
    from txsaga.store import migrate
    from txsaga.store.connection import make_engine, parse_url, transaction

    address, namespace = parse_url(home_url(options))
    engine = make_engine(address, namespace)
    try:
        with transaction(engine) as connection:
            migrate.check(connection, namespace)
            yield connection, namespace
    finally:
        engine.dispose()


def _embedded(options: Options) -> EmbeddedServer:
    from txsaga.embedded.server import EmbeddedServer

    if options.url is not None:
        raise ConfigError("this command is for the embedded database; leave out --url")
    return EmbeddedServer.from_env(Settings.from_env(os.environ).embedded)


def _show_status(server: EmbeddedServer, options: Options) -> None:
    shown = asdict(server.status())
    (document if options.json else fields)(shown)
