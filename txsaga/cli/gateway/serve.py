"""`txsaga gateway`: RocketMQ's own clients on a store of txsaga."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.console import LOCAL
from txsaga.cli.home import given_url
from txsaga.cli.options import options_of, whole
from txsaga.cli.printing import say
from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.gateway.access_keys import AccessKey
CHECKS = 64
"""Questions that wait for clients at the same time."""


def gateway(
    context: typer.Context,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(parser=whole(0, 65_535), metavar="NUMBER", help="Port; 0 for any free one.")
    ] = 8081,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File of access keys, KEY:SECRET and rights a line. Default: none needed."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="PATH", help="PEM file with the certificate for TLS. Default: no TLS.")
    ] = None,
    share_port: Annotated[
        bool, typer.Option("--share-port", help="Share the port with other gateways of this store.")
    ] = False,
    private_key: Annotated[Path | None, typer.Option(metavar="PATH", help="PEM file with its private key.")] = None,
) -> None:
    """Serve RocketMQ's clients (5.x, gRPC) until it is interrupted."""
    try:
        from txsaga.gateway.access import RIGHTS
        from txsaga.gateway.access_keys import read_keys
        from txsaga.gateway.server import GatewayServer
    except ImportError as missing:
        raise ConfigError(f"the gateway needs packages ({missing}); pip install 'txsaga[gateway]'") from missing
    from txsaga.wiring.connecting import connect

    options = options_of(context)
    known, pair = None if keys is None else read_keys(keys, RIGHTS), _pair(certificate, private_key)
    if known is None and host not in LOCAL:
        raise ConfigError(f"--host {host} opens the gateway to others; give --keys as well")

    async def serve(broker: Broker, keys: Mapping[str, AccessKey] | None) -> None:
        server, over = GatewayServer(broker, keys, shared=share_port), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        at = f"[{host}]" if ":" in host else host
        say(f"{at}:{await server.start(f'{at}:{port}', pair)}")
        sys.stdout.flush()
        await over.wait()
        await server.stop()

    with connect(given_url(options), namespace=options.namespace, roles=False, check_threads=CHECKS) as broker:
        asyncio.run(serve(broker, known))


def _pair(certificate: Path | None, private_key: Path | None) -> tuple[bytes, bytes] | None:
    if certificate is None and private_key is None:
        return None
    if certificate is None or private_key is None:
        raise ConfigError("TLS needs both --certificate and --private-key")
    try:
        return private_key.read_bytes(), certificate.read_bytes()
    except OSError as reason:
        raise ConfigError(f"the certificate can't be read: {reason}") from None
