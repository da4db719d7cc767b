"""`txsaga collect`: what was staged for tables and will never be published is taken away."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from txsaga.cli.home import opened
from txsaga.cli.options import options_of, span_of
from txsaga.cli.printing import document, say


def collect(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    keep_rejected: Annotated[
        timedelta | None,
        typer.Option(parser=span_of, metavar="TIME", help="Keep what a gate said no to for so long: 12h, 7d."),
    ] = None,
) -> None:
    """Take away staged files of transactions that rolled back, and of attempts that lost."""
    options = options_of(context)
    with opened(options) as broker:
        kernel = broker.kernel
        gone = [*kernel.rows.collect(dry_run=dry_run)]
        gone += kernel.tables.collect(dry_run=dry_run, keep_rejected=keep_rejected or timedelta(0))
    if options.json:
        document({"collected": gone, "dry_run": dry_run})
        return
    for place in gone:
        say(place)
    say(f"{len(gone)} {'would go' if dry_run else 'taken away'}")
