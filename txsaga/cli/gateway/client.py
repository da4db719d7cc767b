"""`txsaga client`: the clients that are connected to the gateways of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import reading
from txsaga.cli.options import options_of
from txsaga.cli.printing import listing, printable, result

if TYPE_CHECKING:
    from txsaga.gateway.client_commands import ClientCommands

app = typer.Typer(help="List the clients of the gateways, show their threads, and try their listeners.")
Client = Annotated[str, typer.Argument(help="Id of the client.")]
Place = Annotated[str, typer.Argument(help="A stored message, as `txsaga tail` prints it: TOPIC/QUEUE@OFFSET.")]


@contextmanager
def _commands(context: typer.Context) -> Iterator[ClientCommands]:
    from txsaga.gateway.client_commands import ClientCommands

    with reading(options_of(context)) as store:
        yield ClientCommands(store.engine, store.namespace)


@app.command("list")
def list_clients(context: typer.Context) -> None:
    """List the clients that are connected, what they send to or read, and for how long they have been silent."""
    with _commands(context) as commands:
        found = commands.clients()
    rows = [
        (each["client"], each["kind"], each["group"], ", ".join(each["topics"]), timedelta(seconds=each["silent"]))
        for each in found
    ]
    listing(options_of(context), found, ("client", "kind", "group", "topics", "silent"), rows)


@app.command()
def threads(context: typer.Context, client: Client) -> None:
    """Show the threads of a client, and where each of them is."""
    with _commands(context) as commands:
        said = commands.ask(client)
    text = "\n".join(printable(line) for line in said.expandtabs(4).splitlines())
    result(options_of(context), {"client": client, "threads": said}, text)


@app.command()
def verify(context: typer.Context, client: Client, message: Place) -> None:
    """Let a push consumer run its listener on a stored message. For its group nothing changes."""
    with _commands(context) as commands:
        said = commands.ask(client, message)
    result(options_of(context), {"client": client, "message": message, "result": said}, f"the listener reports {said}")
