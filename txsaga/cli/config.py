"""`txsaga config`: the settings that are in effect, and names that no setting has."""

from __future__ import annotations

import os

import typer

from txsaga import config
from txsaga.cli.options import options_of
from txsaga.cli.printing import listing
from txsaga.core.redacting import redacted
from txsaga.errors import ConfigError

app = typer.Typer(help="Show the settings.")
PREFIX = "TXSAGA_"
INTERNAL = ("TXSAGA_HOST", "TXSAGA_HOST_STORE")
"""Set by `txsaga airflow` in the processes that it starts."""
VARIABLES = [each for each in vars(config).values() if isinstance(each, config.Variable)]


@app.callback()
def settings() -> None:
    """Show the settings."""


@app.command()
def show(context: typer.Context) -> None:
    """List the settings in the environment, with problems, and which home database is used. Secrets are masked."""
    from txsaga.store.connection import parse_url

    options = options_of(context)
    url = options.url or os.environ.get(config.URL.name)
    namespace = parse_url(config.with_namespace(url, options.namespace))[1] if url else options.namespace
    rows = [
        ("home database", redacted(url) if url else "embedded", ""),
        ("namespace", namespace or config.NAMESPACE, ""),
    ]
    rows += [(name, *_read(name, text)) for name, text in sorted(os.environ.items()) if name.startswith(PREFIX)]
    columns = ("setting", "value", "problem")
    listing(options, [dict(zip(columns, row, strict=True)) for row in rows], columns, rows)


def _read(name: str, text: str) -> tuple[str, str]:
    known = [
        each for each in VARIABLES if each.name == name or (each.name.endswith("_") and name.startswith(each.name))
    ]
    if not known and name not in INTERNAL:
        return redacted(text), "no setting has this name"
    try:
        for each in known:
            each.read(name, text)
    except ConfigError as wrong:
        return redacted(text), str(wrong)
    return redacted(text), ""
