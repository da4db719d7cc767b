"""`txsaga catalog`: Iceberg's REST protocol on the tables of a store."""

from __future__ import annotations

import signal
import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from txsaga.cli.console import LOCAL, listening
from txsaga.cli.home import given_url
from txsaga.cli.options import options_of, whole
from txsaga.cli.printing import say
from txsaga.errors import ConfigError


def catalog(
    context: typer.Context,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(parser=whole(0, 65_535), metavar="NUMBER", help="Port; 0 for any free one.")
    ] = 8181,
    clients: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File of clients, ID:SECRET and rights a line. Default: none needed."),
    ] = None,
    share_port: Annotated[
        bool, typer.Option("--share-port", help="Share the port with other servers of this store.")
    ] = False,
    credentials: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="For files in S3: none, static (own keys, to writers), or a role's ARN (sessions)."
        ),
    ] = "none",
) -> None:
    """Serve Iceberg's clients (REST) until it is interrupted."""
    try:
        import uvicorn

        from txsaga.catalog.access import Clients
        from txsaga.catalog.app import create_app
        from txsaga.catalog.open_catalog import OpenCatalog
    except ImportError as missing:
        raise ConfigError(f"the catalog needs packages ({missing}); pip install 'txsaga[catalog]'") from missing
    from txsaga.wiring.connecting import connect

    options = options_of(context)
    if clients is None and host not in LOCAL:
        raise ConfigError(f"--host {host} opens the catalog to others; give --clients as well")
    known = Clients.read(clients)
    with (
        listening("catalog", host, port, shared=share_port) as opened,
        connect(given_url(options), namespace=options.namespace, roles=False) as broker,
    ):
        opened_catalog = cache(lambda: OpenCatalog(broker, credentials))
        if credentials != "none":
            opened_catalog()  # a mistake in them ends the command
        app = create_app(opened_catalog, known)
        say(f"http://{host}:{opened.getsockname()[1]}")
        sys.stdout.flush()
        quiet = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=5, timeout_keep_alive=75
        )
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again once it has stopped
        uvicorn.Server(quiet).run(sockets=[opened])
