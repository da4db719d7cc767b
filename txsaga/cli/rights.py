"""`txsaga db rights`, `grant` and `revoke`: who may do what in a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import home_url
from txsaga.cli.options import Options, options_of
from txsaga.cli.printing import document, say, table
from txsaga.errors import RightsMissing
from txsaga.store.right import Right

if TYPE_CHECKING:
    from sqlalchemy import Connection

app = typer.Typer()
Which = Annotated[Right, typer.Argument(help="The right.")]
Printed = Annotated[bool, typer.Option("--print", help="Only print the SQL, for an administrator.")]


@app.command()
def rights(context: typer.Context) -> None:
    """Show which role has which right, where it has it from, and which producer groups are its own."""
    from txsaga.store.granting import holders

    options = options_of(context)
    with _home(options) as (connection, namespace):
        found = holders(connection, namespace)
    if options.json:
        document([holder._asdict() for holder in found])
        return
    rows = [(holder.role, holder.right, holder.through, ", ".join(holder.groups)) for holder in found]
    table(("role", "right", "through", "producer groups"), rows)


@app.command()
def grant(
    context: typer.Context,
    right: Which,
    to: Annotated[str, typer.Option(help="The role that gets it: a login, or a group of logins.")],
    group: Annotated[
        list[str] | None, typer.Option(help="A producer group that is only this role's from now on.")
    ] = None,
    printed: Printed = False,
) -> None:
    """Give a role a right: producer, consumer, operator or engine."""
    from txsaga.store import granting

    groups = group or []
    if groups and right is not Right.PRODUCER:
        raise typer.BadParameter("only a producer has producer groups", param_hint="--group")
    _change(
        context, lambda connection, namespace: granting.grant(connection, namespace, right, to, groups), printed=printed
    )


@app.command()
def revoke(
    context: typer.Context,
    right: Which,
    role: Annotated[str, typer.Option("--from", help="The role that loses it.")],
    printed: Printed = False,
) -> None:
    """Take a right from a role."""
    from txsaga.store import granting

    _change(context, lambda connection, namespace: granting.revoke(connection, namespace, right, role), printed=printed)


def _change(context: typer.Context, write: Callable[[Connection, str], Sequence[str]], *, printed: bool) -> None:
    from txsaga.store import granting

    options = options_of(context)
    with _home(options) as (connection, namespace):
        if not granting.login(connection, namespace).owner:
            raise RightsMissing(
                f"only the owner of namespace {namespace!r} may change rights there; connect as its owner"
            )
        statements = write(connection, namespace)
        if not printed:
            granting.run(connection, statements)
    if options.json:
        document({"namespace": namespace, "done": not printed, "statements": statements})
    elif printed:
        say("\n".join(f"{statement};" for statement in statements))
    else:
        say(f"done in namespace {namespace}; see `txsaga db rights`")


@contextmanager
def _home(options: Options) -> Iterator[tuple[Connection, str]]:
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
