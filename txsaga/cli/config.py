"""`txsaga config`: the settings that are in effect, and names that no setting has."""

from __future__ import annotations

import os

import typer

from txsaga import config
from txsaga.cli.home import check_settings, given_url
from txsaga.cli.options import Options, options_of
from txsaga.cli.printing import listing
from txsaga.core.redacting import MASK, redacted
from txsaga.errors import TxSagaError

app = typer.Typer(help="Show the settings.")
INTERNAL = ("TXSAGA_HOST", "TXSAGA_HOST_STORE")  # set by `txsaga airflow` in the processes that it starts
VARIABLES = [each for each in vars(config).values() if isinstance(each, config.Variable)]
ADDRESSES = (config.URL, config.RESOURCES, config.BROKERS, config.AIRFLOW_URL)


@app.callback()
def settings() -> None:
    """Show the settings."""


@app.command()
def show(context: typer.Context) -> None:
    """List the settings in the environment, and what is wrong with them. Logins are masked; no database is needed."""
    options = options_of(context)
    rows = [(name, *_read(name, text)) for name, text in sorted(os.environ.items()) if name.startswith("TXSAGA_")]
    rows.insert(0, ("home database", *_home(options)))
    columns = ("setting", "value", "problem")
    listing(options, [dict(zip(columns, row, strict=True)) for row in rows], columns, rows)


def _home(options: Options) -> tuple[str, str]:
    from txsaga.store.connection import parse_url

    try:
        check_settings(config.Settings.from_env(os.environ))
        if (url := given_url(options)) is not None:
            parse_url(url)
    except TxSagaError as wrong:
        return "not usable", str(wrong)
    return redacted(url or f"embedded, namespace {options.namespace or config.NAMESPACE}"), ""


def _read(name: str, text: str) -> tuple[str, str]:
    for each in VARIABLES:
        if each.name == name or (each.name.endswith("_") and name.startswith(each.name)):
            return text if each not in ADDRESSES else redacted(text) if "://" in text else MASK, ""
    return (text, "") if name in INTERNAL else (MASK, "no setting has this name")
