"""`txsaga console`: the web console of a store, and the accounts of those who use it."""

from __future__ import annotations

import getpass
import json
import re
import secrets
import sys
from contextlib import closing
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txsaga.cli.home import given_url
from txsaga.cli.options import options_of, os_user, whole
from txsaga.cli.printing import say
from txsaga.errors import ConfigError

if TYPE_CHECKING:
    from txsaga.clusters.config import ClusterConfig
    from txsaga.console.access import OwnGuard

app = typer.Typer(help="See every transaction in a browser, and settle it.", invoke_without_command=True)
LOCAL = ("127.0.0.1", "localhost", "::1")


@app.callback()
def console(
    context: typer.Context,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(parser=whole(0, 65_535), metavar="NUMBER", help="Port; 0 for any free one.")
    ] = 8321,
    accounts: Annotated[
        Path | None, typer.Option(metavar="PATH", help="File of accounts. Default: only the link that is printed.")
    ] = None,
    user_header: Annotated[
        str | None, typer.Option(metavar="NAME", help="Header in which a reverse proxy names the person.")
    ] = None,
    role_header: Annotated[
        str | None, typer.Option(metavar="NAME", help="Header in which it names the role: viewer, operator, admin.")
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Prefix under which a proxy serves the console, and that it removes.")
    ] = "",
    cluster: Annotated[
        Path | None, typer.Option(metavar="PATH", help="JSON file with the definition of a cluster to show.")
    ] = None,
) -> None:
    """Serve the console until it is interrupted, and print the link to it."""
    if context.invoked_subcommand is not None:
        return
    try:
        from txsaga.console.access import COOKIE, OwnGuard
    except ImportError as missing:
        raise ConfigError(f"the console needs packages ({missing}); pip install 'txsaga[console]'") from missing
    from txsaga.console.people import read_accounts

    if role_header and not user_header:
        raise ConfigError("--role-header needs --user-header, which names the person")
    link = None if accounts or user_header else secrets.token_urlsafe(24)
    if link is not None and host not in LOCAL:
        raise ConfigError(f"--host {host} opens the console to others; give --accounts or --user-header as well")
    guard = OwnGuard(
        accounts={} if accounts is None else read_accounts(accounts),
        link=link,
        header=user_header,
        role_header=role_header,
        owner=os_user().partition("@")[0],
        cookie=f"{COOKIE}_{port}",
    )
    if root_path and not re.fullmatch(r"(/[\w.~-]+)+", root_path):
        raise ConfigError(f"--root-path is {root_path!r}; write a path such as /txsaga, without a / at its end")
    _serve(context, guard, host, port, root_path, None if cluster is None else _cluster(cluster))


@app.command()
def account(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the person or program.")],
    role: Annotated[str, typer.Option(metavar="ROLE", help="viewer, operator, admin, or client.")] = "viewer",
    key: Annotated[bool, typer.Option("--key", help="Make a key for a program instead of a password.")] = False,
) -> None:
    """Print the line of an account, to be added to a file. The password is asked for, or read from standard input."""
    from txsaga.console.people import Credential, Rank

    if not name or set(":$.\n\r ") & set(name):
        raise ConfigError(f"name is {name!r}; use one without spaces, colons, dots and $")
    rank, given = Rank.named(role), secrets.token_urlsafe(32) if key else _password()
    say(Credential.made(name, rank, given, key=key).line.rstrip())
    if key:
        sys.stderr.write(f"the key, shown only now: {name}.{given}\n")


def _password() -> str:
    given = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if len(given) < 8:
        raise ConfigError("the password has fewer than 8 characters; choose a longer one")
    return given


def _cluster(file: Path) -> ClusterConfig:
    from txsaga.clusters.config import read

    try:
        return read(file.stem, json.loads(file.read_text("utf-8")))
    except (OSError, ValueError) as wrong:
        raise ConfigError(f"{file} can't be read: {wrong}; write the definition of `txsaga.cluster` as JSON") from None


def listening(what: str, host: str, port: int, *, shared: bool = False) -> socket:
    """Return a socket that listens on an address, perhaps together with other processes."""
    try:
        return create_server((host, port), family=AF_INET6 if ":" in host else AF_INET, reuse_port=shared)
    except OSError as reason:
        raise ConfigError(f"the {what} can't listen on {host}, port {port}: {reason}") from None


def _serve(
    context: typer.Context, guard: OwnGuard, host: str, port: int, root_path: str, cluster: ClusterConfig | None
) -> None:
    import uvicorn

    from txsaga.console.app import create_app
    from txsaga.console.home import Home
    from txsaga.wiring.connecting import connect

    options = options_of(context)
    home = Home(lambda: connect(given_url(options), namespace=options.namespace, roles=False), cluster=cluster)
    with listening("console", host, port) as opened, closing(home):
        home.open()  # a wrong URL is reported at once
        at = root_path or f"http://{host}:{opened.getsockname()[1]}"  # the host is the proxy's
        say(f"{at}/enter?link={guard.link}" if guard.link else at)
        sys.stdout.flush()
        quiet: dict[str, Any] = {
            "log_level": "warning",
            "access_log": False,
            "proxy_headers": False,
            "root_path": root_path,
        }
        app = create_app(home, guard)
        server = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=1, **quiet))  # streams don't end
        app.state.stops = lambda: server.should_exit
        server.run(sockets=[opened])
