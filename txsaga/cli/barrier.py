"""`txsaga barrier`: the tables that hold the evidence of local work, in the databases that do it."""

from __future__ import annotations

from typing import Annotated

import typer

from txsaga.cli.options import options_of
from txsaga.cli.printing import document, say

app = typer.Typer(help="Tables that hold the evidence (and the rollback barrier) of local work.")


@app.command()
def ddl(
    context: typer.Context,
    dialect: Annotated[str, typer.Argument(help="postgresql, mysql, mariadb or sqlite.")],
) -> None:
    """Print the SQL for an administrator who creates the tables."""
    from txsaga.adapters import evidence

    sql = evidence.ddl(dialect)
    if options_of(context).json:
        document({"dialect": dialect, "sql": sql})
    else:
        say(sql.rstrip("\n"))


@app.command()
def create(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="SQLAlchemy URL of the database.")],
) -> None:
    """Create the tables in a database, unless they are there."""
    from txsaga.adapters import evidence
    from txsaga.wiring import resource_engine

    engine = resource_engine(url, "the URL")
    try:
        uuid = evidence.create(engine)
        name = engine.url.render_as_string(hide_password=True)
    finally:
        engine.dispose()
    if options_of(context).json:
        document({"database": uuid, "url": name})
    else:
        say(f"evidence tables are in {name}, database {uuid}")
