"""
The brokers of this process: one per store, opened when a task first needs it, with the databases that tasks need.

They run no roles; `txsaga engine` or the system DAG does. A forked process opens its own brokers. If they are never
closed, their sessions end with the process and nothing else is lost: every answer is durable before it is returned.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

from txsaga.config import RESOURCE
from txsaga.core.forking import at_fork
from txsaga.errors import ConfigError
from txsaga.provider.addresses import database_url, store_url
from txsaga.provider.options import CONN_ID, STANDBY, store_of
from txsaga.provider.reaching import reach_evidence
from txsaga.provider.resources import stored_name

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from sqlalchemy import Engine

    from txsaga.broker import Broker
    from txsaga.messages.producer import Producer


Place = tuple[str, str | None]
"""A store: its connection and its URL."""


class Ambient:
    """The open brokers of a process, by connection and URL."""

    def __init__(self) -> None:
        self._open: dict[Place, Broker] = {}
        self._engines: dict[Place, dict[str, Engine]] = {}
        self._reaching: list[Broker] = []
        self._ahead: dict[str, Place] = {}
        self._of_parent: list[object] = []
        self._lock = Lock()

    def broker(self, store: str | None = None, resources: Iterable[str] = ()) -> Broker:
        """Return the broker of a store connection, with the databases of the given connections registered."""
        store = store_of(store)
        with self._lock:
            place = self._ahead.pop(store, None) or (store, self._url(store))
            self._opened(place, STANDBY.number())
            for connection in resources:
                self._register(place, connection)
            return self._open[place]

    def open_ahead(self, store: str) -> None:
        """Open the broker of a store in the background; if that fails, the task gets the error when it opens it itself.

        The URL is resolved in the calling thread: a task's channel to Airflow supports only one thread at a time.
        """
        with suppress(ConfigError):
            self._ahead[store] = place = store, self._url(store)
            Thread(target=self._open_ahead, args=(place,), name="txsaga-ahead", daemon=True).start()

    def reaching(self, store: str | None = None) -> Broker:
        """Return the broker of a store; it also finds evidence of other flows, through connections of this Airflow."""
        store = store_of(store)
        broker = self.broker(store)
        if broker not in self._reaching:
            self._reaching.append(broker)
            reach_evidence(broker, lambda name, connection: self._add(store, name, connection))
        return broker

    def _add(self, store: str, name: str, connection: str) -> None:
        if stored_name(connection) != name:
            raise ConfigError(f"connection {connection!r} is not {name!r} in the store")
        self.broker(store, [connection])

    def close(self) -> None:
        """Close all brokers."""
        with self._lock:
            for place, broker in self._open.items():
                broker.close()
                for engine in self._engines[place].values():
                    engine.dispose()
            self._open.clear()
            self._engines.clear()
            self._reaching.clear()

    def start_anew(self) -> None:
        """Drop all brokers in a forked child: it must neither use nor end the sessions of its parent."""
        self._lock = Lock()
        self._of_parent.append((dict(self._open), dict(self._engines)))
        self._ahead.clear()
        self._open.clear()
        self._engines.clear()
        self._reaching.clear()

    def _open_ahead(self, place: Place) -> None:
        with suppress(Exception), self._lock:  # the task runs into the same error and reports it
            self._opened(place, 0.0)

    def _opened(self, place: Place, standby: float) -> None:
        if place not in self._open:
            self._open[place], self._engines[place] = _connected(place[1], standby), {}

    def _url(self, store: str) -> str | None:
        try:
            connection = connection_of(store)
        except ConfigError:
            if store == CONN_ID.text() and os.environ.get("TXSAGA_URL"):
                return None
            raise
        if connection.conn_type != "txsaga":
            raise ConfigError(
                f"connection {store!r} is of type {connection.conn_type!r}; a store has a connection of type 'txsaga'"
            )
        return store_url(connection)

    def _register(self, place: Place, connection: str) -> None:
        from txsaga.wiring.resources import resource_engine

        name = stored_name(connection)
        if f"{RESOURCE}{name.upper()}" in os.environ:
            return  # the environment names this resource, as it does for the engine, so the broker knows it already
        url = database_url(connection_of(connection))
        known = self._engines[place].get(name)
        if known is None:
            made = self._engines[place][name] = resource_engine(url, f"connection {connection!r}")
            self._open[place].register(name, made)
        elif known.url.render_as_string(hide_password=False) != url:
            raise ConfigError(f"connection {connection!r} led to another database before; start a new process")


def connection_of(name: str) -> Connection:
    """Return the Airflow connection of a name."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException:
        raise ConfigError(
            f"there is no Airflow connection {name!r}; make it under Admin, Connections, "
            f"or set AIRFLOW_CONN_{name.upper()}"
        ) from None


def producer_of(broker: Broker, group: str) -> Producer:
    """Return the producer of a group. It answers check-back with UNKNOWN: other processes, which live on, answer."""
    from txsaga.core.decision import LocalState

    return broker.producer(group, checker=lambda question: LocalState.UNKNOWN)


def _connected(url: str | None, standby: float) -> Broker:
    import txsaga

    return txsaga.connect(url, roles=False, answering=False, standby=standby)


AMBIENT = Ambient()
atexit.register(AMBIENT.close)
at_fork(AMBIENT.start_anew)
