"""
`txsaga airflow`: a whole Airflow on this machine, with the embedded database and the engine.

For a laptop, a demonstration and tests. It keeps running after the command; a machine that has an Airflow already needs
only the package `txsaga[airflow]` in it.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import given_url
from txsaga.cli.options import Options, options_of, span_of, whole
from txsaga.cli.printing import document, fields, result, table
from txsaga.config import Settings, with_namespace

if TYPE_CHECKING:
    from txsaga.airflow_host.home import Keys
    from txsaga.airflow_host.host import Host, PartStatus

app = typer.Typer(help="Run Airflow on this machine, with its database and the engine.")
PATIENCE = timedelta(minutes=3)


@app.command()
def up(
    context: typer.Context,
    port: Annotated[
        int | None, typer.Option(parser=whole(1, 65_535), metavar="NUMBER", help="Port of the Airflow UI.")
    ] = None,
    dags: Annotated[Path | None, typer.Option(help="Folder with DAG files; remembered for the next start.")] = None,
    patience: Annotated[
        timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="Maximum time to wait. Default: 3m.")
    ] = None,
) -> None:
    """Start Airflow and the engine if they are not running, and wait until every part is healthy."""
    options, host = options_of(context), _host()
    store = _store(options)
    keys = host.up(
        store=store,
        port=port,
        dags=dags,
        patience=(PATIENCE if patience is None else patience).total_seconds(),
        env=os.environ,
        tell=lambda text: _tell(text, options),
    )
    from txsaga.airflow_host.home import LOGIN

    shown = {
        "url": keys.url(),
        "login": LOGIN,
        "password": keys.password,
        "dags": keys.dags,
        "home": str(host.home.root),
    }
    (document if options.json else fields)(shown)


@app.command()
def down(context: typer.Context) -> None:
    """Stop all processes of Airflow and the engine. The database keeps running (`txsaga db stop` stops it)."""
    options, host = options_of(context), _host()
    ended = host.down()
    result(options, {"ended": ended}, f"{ended} processes ended" if ended else "nothing was running")


@app.command()
def status(context: typer.Context) -> None:
    """Show whether each part runs and sends heartbeats. Exits with 6 if a part does not."""
    from txsaga.core import exits

    options, host = options_of(context), _host()
    keys, parts = host.home.keys(), host.status()
    healthy = all(part.healthy for part in parts)
    columns = ("part", "pid", "state", "restarts")
    rows = [(part.part.value, part.pid, _word(part), part.restarts) for part in parts]
    if options.json:
        shown = {"parts": [dict(zip(columns, row, strict=True)) for row in rows], "healthy": healthy}
        document(_shown(host, keys) | shown)
    else:
        fields(_shown(host, keys))
        table(columns, [(part, pid or "–", *rest) for part, pid, *rest in rows])
    if not healthy:
        raise typer.Exit(exits.UNAVAILABLE)


@app.command()
def keys(context: typer.Context) -> None:
    """Generate settings for docker-compose.yml. Run it once: `txsaga airflow keys > .env`."""
    from txsaga.airflow_host.home import Keys

    made, logins = Keys.new(Path("dags")), ("POSTGRES", "AIRFLOW_DB", "ENGINE_DB", "FLOWS_DB")
    settings = {"COMPOSE_PROFILES": "airflow"} | {f"{each}_PASSWORD": Keys.new(Path("dags")).secret for each in logins}
    settings |= {"AIRFLOW_PASSWORD": made.password, "AIRFLOW_FERNET_KEY": made.fernet}
    settings |= {"AIRFLOW_JWT_SECRET": made.jwt, "AIRFLOW_SECRET_KEY": made.secret}
    result(options_of(context), settings, "\n".join(f"{name}={value}" for name, value in settings.items()))


def _shown(host: Host, keys: Keys | None) -> dict[str, object]:
    from txsaga.embedded.server import EmbeddedServer

    database = EmbeddedServer.from_env(Settings.from_env(os.environ).embedded).status()
    return {
        "home": str(host.home.root),
        "url": keys.url() if keys else None,
        "login": f"admin, password in {host.home.passwords}" if keys else None,
        "database": "running" if database.running else "stopped",
    }


def _word(part: PartStatus) -> str:
    if part.pid is None:
        return "stopped"
    return "healthy" if part.healthy else "no heartbeat"


def _host() -> Host:
    from txsaga.airflow_host.home import AirflowHome
    from txsaga.airflow_host.host import Host
    from txsaga.embedded.server import EmbeddedServer

    return Host(AirflowHome.from_env(), EmbeddedServer.from_env(Settings.from_env(os.environ).embedded))


def _store(options: Options) -> str | None:
    """Return the URL of the store where it is not the embedded one, which is brought to its schema here."""
    if (url := given_url(options)) is not None:
        return url
    from txsaga.store.store import Store
    from txsaga.wiring.connecting import embedded_url, open_store

    address = embedded_url(Settings.from_env(os.environ))
    if options.namespace is None:
        open_store(address).close()
        return None
    named = with_namespace(address, options.namespace)
    Store.open(named).close()
    return named


def _tell(text: str, options: Options) -> None:
    if not options.json and text:
        sys.stderr.write(f"{text} …\n")
        sys.stderr.flush()
