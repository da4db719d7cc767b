"""
Opening the home database that the options and the environment name.

Without a URL it is the embedded database, which the first process starts; its default namespace is created there. A
database with a URL, and a namespace that is named, are only migrated on request: a misspelt name creates nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from txsaga.cli.options import Options
from txsaga.config import NAMESPACE, Settings, load, with_namespace
from txsaga.errors import ConfigError, SchemaMissing, StoreUnavailable

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.core.announcer import Observer
    from txsaga.store.store import Store

logger = logging.getLogger("txsaga")

FIRST_REST, LONGEST_REST = 1.0, 30.0
"""Seconds between two attempts to reach a home database that is down."""
Rest = Callable[[float], object]
"""Waits so many seconds, or raises when waiting is to end."""


@contextmanager
def reading(options: Options) -> Iterator[Store]:
    """Open only the store of these options: a command that reads needs no broker, and starts faster without."""
    from txsaga.store.store import Store

    check_settings(Settings.from_env(os.environ))
    url = given_url(options)
    with closing(_of_server(options) if url is None else Store.open(url)) as store:
        yield store


def check_settings(settings: Settings) -> None:
    """Refuse settings that name what can't be loaded, although reading needs none of it."""
    for place in settings.participants.values():
        load(place, "participant")
    for place in settings.observers:
        load(place, "observer")
    if settings.resources:
        from txsaga.wiring.resources import Resources

        Resources(settings.resources, {}).close()


def _of_server(options: Options) -> Store:
    """Open the store of the embedded database, which may still have to be made."""
    from txsaga.store.store import Store

    url = embedded_url(options)
    try:
        return Store.open(url)
    except SchemaMissing:
        if options.namespace not in (None, NAMESPACE):
            raise
        return Store.open(url, create=True)


@contextmanager
def opened(options: Options, observers: Iterable[Observer] = (), *, rest: Rest | None = None) -> Iterator[Broker]:
    """Open the broker of these options; no role runs in it. With a `rest` it waits for a database that is down."""
    from txsaga.wiring.connecting import connect

    url = given_url(options)
    if url is not None and rest is not None:
        wait_for(url, rest)
    with connect(url, namespace=options.namespace, roles=False, observers=observers) as broker:
        yield broker


def wait_for(url: str, rest: Rest) -> None:
    """Wait until a home database answers; only what runs for ever has so much time."""
    from txsaga.store.store import Store

    seconds = FIRST_REST
    while True:
        try:
            Store.open(url).close()
            return
        except StoreUnavailable as away:
            logger.warning("waiting for the home database; the next attempt is in %g s: %s", seconds, away)
        rest(seconds)
        seconds = min(2 * seconds, LONGEST_REST)


def home_url(options: Options) -> str:
    """Return the URL of the home database, starting the embedded one when no other is named."""
    return given_url(options) or embedded_url(options)


def given_url(options: Options) -> str | None:
    """Return the URL that was given, in its namespace."""
    url = options.url if options.url is not None else Settings.from_env(os.environ).url
    if url is None:
        return None
    if not url.strip():
        raise ConfigError("--url is empty; write postgresql://user:password@host:port/database")
    return with_namespace(url, options.namespace)


def embedded_url(options: Options) -> str:
    """Find or start the embedded database."""
    from txsaga.embedded.server import EmbeddedServer

    return with_namespace(
        EmbeddedServer.from_env(Settings.from_env(os.environ).embedded).ensure().store_url(), options.namespace
    )
