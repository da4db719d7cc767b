"""`txsaga db`: the embedded database, and schema, rights and identity of any home database."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli import rights
from txsaga.cli.home import home_url, with_namespace
from txsaga.cli.options import Options, options_of
from txsaga.cli.printing import document, fields, progress, say
from txsaga.config import Settings
from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from txsaga.embedded.server import EmbeddedServer

app = typer.Typer(help="The embedded database, and schema and rights of any home database.")
app.add_typer(rights.app)


@app.command()
def start(context: typer.Context) -> None:
    """Start the embedded database, unless it runs."""
    from txsaga.embedded.probe import DATABASE

    options = options_of(context)
    server = _embedded(options).ensure()
    server.database(DATABASE)
    _show_status(server, options)


@app.command()
def stop(context: typer.Context) -> None:
    """Stop the embedded database; whoever uses it loses its connection."""
    options = options_of(context)
    server = _embedded(options)
    server.stop()
    _show_status(server, options)


@app.command()
def status(context: typer.Context) -> None:
    """Tell whether the embedded database runs, and where it lives."""
    options = options_of(context)
    _show_status(_embedded(options), options)


@app.command()
def url(
    context: typer.Context,
    jdbc: Annotated[bool, typer.Option("--jdbc", help="For JDBC: without user and password.")] = False,
    socket: Annotated[bool, typer.Option("--socket", help="By the unix socket.")] = False,
) -> None:
    """Print the URL of the embedded database, with its password, and start it unless it runs."""
    from txsaga.embedded.probe import DATABASE

    options = options_of(context)
    if jdbc and socket:
        raise typer.BadParameter("JDBC can't use a unix socket; leave one of them out", param_hint="--socket")
    address = _embedded(options).ensure().url(DATABASE, "jdbc" if jdbc else None, socket=socket)
    address = address if jdbc else with_namespace(address, options.namespace)
    if options.json:
        document({"url": address})
    else:
        say(address)


@app.command()
def reset(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="I know that all data is deleted.")] = False,
) -> None:
    """Stop the embedded database and DELETE ITS DATA."""
    options = options_of(context)
    server = _embedded(options)
    if not yes:
        raise typer.BadParameter(f"this deletes all data below {server.home}; say --yes if you mean it")
    server.reset()
    _show_status(server, options)


@app.command()
def migrate(context: typer.Context) -> None:
    """Bring the home database to the schema of this program."""
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
    if options.json:
        document({"namespace": namespace, "before": before, "after": after})
    elif before == after:
        say(f"namespace {namespace} has schema {after} already")
    else:
        say(f"namespace {namespace} went from schema {before or 'none'} to {after}")


@app.command()
def adopt(
    context: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Also on the server that it was made on.")] = False,
) -> None:
    """Make the store at home on this server after a restore or a failover: ids from before are void."""
    from txsaga.errors import IdentityChanged
    from txsaga.store import founding
    from txsaga.store import migrate as schema
    from txsaga.store.connection import make_engine, parse_url, transaction

    options = options_of(context)
    address, namespace = parse_url(home_url(options))
    engine = make_engine(address, namespace)
    try:
        with transaction(engine) as connection:
            schema.check(connection, namespace)
            try:
                known = founding.recognise(connection)
            except IdentityChanged:
                known = None
            if known is not None and not force:
                raise ConfigError(f"store {known} is at home on this server already; if it was restored, say --force")
            identity = founding.adopt(connection, namespace)
    finally:
        engine.dispose()
    if options.json:
        document({"uuid": identity.uuid, "incarnation": identity.incarnation})
    else:
        say(f"store {identity.uuid} is at home here as incarnation {identity.incarnation}; restart its engines")


def _embedded(options: Options) -> EmbeddedServer:
    from txsaga.embedded.server import EmbeddedServer

    if options.url is not None:
        raise ConfigError("this is about the embedded database; leave --url out")
    return EmbeddedServer.from_env(Settings.from_env(os.environ).embedded)


def _show_status(server: EmbeddedServer, options: Options) -> None:
    found = server.status()
    shown = {
        "running": found.running,
        "home": str(found.home),
        "pid": found.pid,
        "port": found.port,
        "version": found.version,
        "url": found.url,
    }
    if options.json:
        document(shown)
    else:
        fields(shown)
