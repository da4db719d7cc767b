"""`txsaga tx replay`: send the messages of a transaction that was rolled back once more, in a new one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import dispatch, opened
from txsaga.cli.options import options_of
from txsaga.cli.printing import document, say, table
from txsaga.cli.tx import Id, number_of, os_user

if TYPE_CHECKING:
    from txsaga.messages.replay import ReplayResult


def replay(
    context: typer.Context,
    id: Id,
    key: Annotated[str | None, typer.Option(help="Key of the new transaction; else that of the old one.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept with your name. Needed with --yes.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it nothing is sent.")] = False,
) -> None:
    """Commit the messages of a rolled back transaction in a new one; first without --yes, to see which."""
    if yes and reason is None:
        raise typer.BadParameter("say why; it is kept with your name", param_hint="--reason")
    options = options_of(context)
    with opened(options) as broker:
        txid = number_of(id, broker.identity)
        done = broker.replay(txid, key=key, who=os_user(), why=reason or "-", dry_run=not yes)
        if yes:
            dispatch(broker)
    if options.json:
        document({**asdict(done), "messages": [each._asdict() for each in done.messages], "done": yes})
    else:
        _tell(done)


def _tell(done: ReplayResult) -> None:
    table(("topic", "queue", "messages"), done.messages)
    if done.left_out:
        say("\nwhat a replay does not do:")
        for what in done.left_out:
            say(f"  {what}")
    say()
    if done.replayed_as is None:
        say("nothing was sent; say --yes --reason WHY to do it")
    else:
        words = "was replayed before," if done.again else "is replayed"
        say(f"transaction {done.txid} {words} as transaction {done.replayed_as}")
