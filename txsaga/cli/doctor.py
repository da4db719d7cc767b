"""`txsaga doctor`: what is wrong with a home database, and what helps."""

from __future__ import annotations

from dataclasses import asdict

import typer

from txsaga.cli import exits
from txsaga.cli.home import home_url
from txsaga.cli.options import options_of
from txsaga.cli.printing import document, table


def doctor(context: typer.Context) -> None:
    """Examine the home database and the store; nothing is changed. It exits with 7 when an error is found."""
    from txsaga.store.doctor import Severity, examine

    options = options_of(context)
    findings = examine(home_url(options))
    if options.json:
        document([asdict(finding) for finding in findings])
    else:
        table(("", "what", "found", "remedy"), [(f.severity, f.what, f.found, f.remedy) for f in findings])
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(exits.REFUSED)
