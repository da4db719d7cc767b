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
INTERNAL = ("TXSAGA_HOST", "TXSAGA_HOST_STORE")  # set by `txsaga airflow` in the processes that it starts
VARIABLES = [each for each in vars(config).values() if isinstance(each, config.Variable)]


@app.callback()
def settings() -> None:
    """Show the settings."""


@app.command()
def show(context: typer.Context) -> None:
    """List the settings in the environment, with problems, and which home database is used. Secrets are masked."""
    options = options_of(context)
    rows = _home(options.url or os.environ.get(config.URL.name), options.namespace)
    rows += [(name, *_read(name, text)) for name, text in sorted(os.environ.items()) if name.startswith("TXSAGA_")]
    columns = ("setting", "value", "problem")
    listing(options, [dict(zip(columns, row, strict=True)) for row in rows], columns, rows)


def _home(url: str | None, namespace: str | None) -> list[tuple[str, str, str]]:
    from txsaga.store.connection import parse_url

    if not url:
        return [("home database", "embedded", ""), ("namespace", namespace or config.NAMESPACE, "")]
    try:
        namespace = parse_url(config.with_namespace(url, namespace))[1]
    except ConfigError as wrong:
        return [("home database", redacted(url), str(wrong))]
    return [("home database", redacted(url), ""), ("namespace", namespace, "")]


def _read(name: str, text: str) -> tuple[str, str]:
    for each in VARIABLES:
        if each.name == name or (each.name.endswith("_") and name.startswith(each.name)):
            try:
                each.read(name, text)
            except ConfigError as wrong:
                return redacted(text), str(wrong)
            return redacted(text), ""
    return redacted(text), "" if name in INTERNAL else "no setting has this name"
