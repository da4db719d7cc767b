"""`txsaga barrier`: the tables that hold evidence of local work and the inbox, in the databases that do the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.options import options_of, span_of
from txsaga.cli.printing import result
from txsaga.core.redacting import redacted

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = typer.Typer(help="Manage the evidence tables and the inbox in your own databases.")
Url = Annotated[str, typer.Argument(metavar="URL", help="SQLAlchemy URL of the database.")]


@app.command()
def ddl(
    context: typer.Context,
    dialect: Annotated[str, typer.Argument(help="SQL dialect: postgresql, mysql, mariadb or sqlite.")],
) -> None:
    """Print the SQL that creates the tables, for an administrator to run."""
    from txsaga.evidence.schema import ddl

    sql = ddl(dialect)
    result(options_of(context), {"dialect": dialect, "sql": sql}, sql.rstrip("\n"))


@app.command()
def create(context: typer.Context, url: Url) -> None:
    """Create the evidence and inbox tables in a database if they do not exist."""
    from txsaga.evidence.location import create

    with engine_of(url) as engine:
        uuid, name = create(engine), name_of(engine)
    result(options_of(context), {"database": uuid, "url": name}, f"evidence tables are in {name}, database {uuid}")


@app.command()
def forget(
    context: typer.Context,
    url: Url,
    older_than: Annotated[
        timedelta, typer.Option(parser=span_of, metavar="TIME", help="Minimum age of the entries to delete: 12h, 30d.")
    ],
) -> None:
    """Delete old entries of a database's inbox. A message without its entry is processed again if redelivered."""
    from txsaga.evidence.inbox import forget

    with engine_of(url) as engine:
        forgotten, name = forget(engine, older_than), name_of(engine)
    told = f"{forgotten} messages were forgotten in {name}"
    result(options_of(context), {"forgotten": forgotten, "url": name}, told)


@contextmanager
def engine_of(url: str) -> Iterator[Engine]:
    """Give the engine of a URL, and dispose of it."""
    from txsaga.wiring.resources import resource_engine

    engine = resource_engine(url, "the URL")
    try:
        yield engine
    finally:
        engine.dispose()


def name_of(engine: Engine) -> str:
    """Write a URL without its login."""
    return redacted(str(engine.url))
