"""`txsaga workspace`: branches of many tables, published by one decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import options_of, os_user
from txsaga.cli.printing import listing, result

if TYPE_CHECKING:
    from txsaga.catalog.workspaces import Workspaces, WorkspaceTable

COLUMNS = ("table", "rows added", "rows removed", "changed outside since")
app = typer.Typer(help="Change many tables on branches, and publish them by one decision.")
Name = Annotated[str, typer.Argument(help="Name of the workspace.")]


@contextmanager
def _workspaces(context: typer.Context) -> Iterator[Workspaces]:
    from txsaga.catalog.workspaces import Workspaces

    with opened(options_of(context)) as broker:
        yield Workspaces(broker)


@app.command()
def create(
    context: typer.Context,
    name: Name,
    tables: Annotated[
        list[str], typer.Option("--table", metavar="NAME", help="Table or pattern, such as 'sales.*'; may be repeated.")
    ],
) -> None:
    """Begin a workspace: a branch in each of these tables. Engines use it by warehouse=workspace-NAME."""
    with _workspaces(context) as workspaces:
        found = [str(each) for each in workspaces.create(name, tables, os_user())]
    result(options_of(context), {"workspace": name, "tables": found}, f"workspace {name} of {', '.join(found)}")


@app.command("list")
def list_all(context: typer.Context) -> None:
    """List the workspaces, what became of them, and the voters whose approval they wait for."""
    with _workspaces(context) as workspaces:
        found = workspaces.all()
    documents = [
        {
            "workspace": each.name,
            "tables": [str(name) for name in each.tables],
            "state": state,
            "transaction": asked and asked[0],
            "waits_for": asked and asked[1],
        }
        for each, state, asked in found
    ]
    rows = [
        (each.name, len(each.tables), state, asked and asked[0], asked and ", ".join(asked[1]))
        for each, state, asked in found
    ]
    listing(options_of(context), documents, ("workspace", "tables", "state", "transaction", "waits for"), rows)


@app.command()
def diff(context: typer.Context, name: Name) -> None:
    """Show what was changed in a workspace."""
    with _workspaces(context) as workspaces:
        _show(context, workspaces.diff(name))


@app.command()
def publish(
    context: typer.Context,
    name: Name,
    approval: Annotated[
        list[str] | None,
        typer.Option(metavar="VOTER", help="Ask VOTER first (tx vote), and publish nothing yet; may be repeated."),
    ] = None,
) -> None:
    """Make everything in a workspace visible by one decision, or nothing if a table was changed outside since."""
    options = options_of(context)
    with _workspaces(context) as workspaces:
        if not approval:
            return _show(context, workspaces.publish(name, os_user()))
        txid, tables = workspaces.ask(name, approval, os_user())
    if not options.json:
        _show(context, tables)
    vote = f"txsaga tx vote {txid} 'publish {name}' yes --voter {approval[0]} --reason WHY"
    text = f"it waits for {', '.join(approval)}: {vote}"
    result(options, {"transaction": txid, "ballot": f"publish {name}", "waits_for": approval}, text)


@app.command()
def withdraw(context: typer.Context, name: Name) -> None:
    """Withdraw the request for approval: the workspace can be published without one again."""
    with _workspaces(context) as workspaces:
        workspaces.withdraw(name, os_user())
    result(options_of(context), {"workspace": name}, f"the question about workspace {name} is withdrawn")


@app.command()
def undo(context: typer.Context, name: Name) -> None:
    """Point the tables of a published workspace back at what they were, unless one was changed since."""
    with _workspaces(context) as workspaces:
        found = [str(each) for each in workspaces.undo(name, os_user())]
    result(options_of(context), {"workspace": name, "undone": found}, f"undone: {', '.join(found) or 'nothing'}")


@app.command()
def drop(context: typer.Context, name: Name) -> None:
    """Remove the branches of a workspace: what was written in it is lost."""
    with _workspaces(context) as workspaces:
        count = workspaces.drop(name, os_user())
    result(options_of(context), {"workspace": name, "tables": count}, f"dropped workspace {name} of {count} tables")


def _show(context: typer.Context, tables: Sequence[WorkspaceTable]) -> None:
    rows = [(str(each.table), each.added, each.removed, "yes" if each.moved else "") for each in tables]
    documents = [{**each._asdict(), "table": str(each.table)} for each in tables]
    listing(options_of(context), documents, COLUMNS, rows)
