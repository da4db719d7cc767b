"""
Airflow connections as databases, and the brokers that this process opens through them: one per store.

A broker is opened when a task first needs it, with the databases that tasks need. It runs no roles; `txsaga engine` or
the system DAG does. A forked process opens its own brokers. If they are never closed, their sessions end with the
process and nothing else is lost: every answer is durable before it is returned.

The provider packages of the databases are not needed. A connection of an unknown type also works if its extra has an
`sqlalchemy_url`, which is then used as it is.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from txsaga.config import RESOURCE
from txsaga.core.forking import at_fork
from txsaga.errors import ConfigError, ResourceUnknown, TxSagaError
from txsaga.provider.options import CONN_ID, STANDBY, store_of
from txsaga.provider.resources import stored_name

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from txsaga.broker import Broker
    from txsaga.evidence.ports import Evidence
    from txsaga.messages.producer import Producer


POSTGRES = "postgresql+psycopg"
DRIVERS = {
    "postgres": POSTGRES,
    "postgresql": POSTGRES,
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}
"""The SQLAlchemy driver for each type of connection."""


def database_url(connection: Connection) -> str:
    """Return the SQLAlchemy URL of a connection to a database."""
    if given := connection.extra_dejson.get("sqlalchemy_url"):
        return masked(str(given))
    driver = DRIVERS.get(connection.conn_type or "")
    if driver is None:
        known = ", ".join(sorted(DRIVERS))
        raise ConfigError(
            f"connection {connection.conn_id!r} is of type {connection.conn_type!r}; use one of {known}, "
            "or set a sqlalchemy_url in its extra"
        )
    if driver == "sqlite":
        return f"{driver}:///{connection.host or connection.schema or ''}"
    return _url(connection, driver, {}).render_as_string(hide_password=False)


def store_url(connection: Connection) -> str | None:
    """Return the store URL of a connection; None means the store of TXSAGA_URL, or the embedded one."""
    extra = connection.extra_dejson
    if extra.get("url"):
        return masked(str(extra["url"]))
    if not connection.host and not connection.schema:
        return None
    query = {"namespace": str(extra["namespace"])} if extra.get("namespace") else {}
    return _url(connection, POSTGRES, query).render_as_string(hide_password=False)


def masked(url: str) -> str:
    """Return a URL from an extra, with its password masked in logs: Airflow only masks the password field itself."""
    from airflow.sdk.log import mask_secret
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    found: list[object] = [
        url.rpartition("@")[0].partition("://")[2]
    ]  # fallback for a URL that can't be parsed; opening it reports the error
    with suppress(ArgumentError, ValueError):
        found = [make_url(url).password, urlsplit(url).password]  # decoded, and as written in the URL
    for password in filter(None, found):
        mask_secret(str(password))
    return url


def _url(connection: Connection, driver: str, query: dict[str, str]) -> URL:
    from sqlalchemy import URL

    return URL.create(
        driver,
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host or None,
        port=int(connection.port) if connection.port else None,
        database=connection.schema or None,
        query=query,
    )


Register = Callable[[str, str], None]
"""Register the database of a connection under a name, or raise `ConfigError`."""


def reach_evidence(broker: Broker, register: Register) -> None:
    """Let a broker find evidence through connections of this Airflow with the names of the databases, on first use.

    A broker of a task or of the triggerer only knows the databases of its own flow, but check-back asks about other
    work. If no connection has the name, the question stays open and the engine asks it.
    """
    known = broker.kernel.evidence

    def find(named: object) -> tuple[str, Evidence]:
        try:
            return known(named)
        except ResourceUnknown:
            if not isinstance(named, str) or not _registered(named, register):
                raise
        return known(named)

    broker.kernel.evidence = find


def connections_of(name: str) -> Iterator[str]:
    """Yield the connection ids that a resource of the store may have."""
    yield from dict.fromkeys((name, name.replace("_", "-"), name.upper()))


def _registered(name: str, register: Register) -> bool:
    for connection in connections_of(name):
        try:
            register(name, connection)
        except ConfigError:
            continue
        return True
    return False


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

            def opening() -> None:
                with suppress(Exception), self._lock:  # the task runs into the same error and reports it
                    self._opened(place, 0.0)

            Thread(target=opening, name="txsaga-ahead", daemon=True).start()

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

    def _opened(self, place: Place, standby: float) -> None:
        if place not in self._open:
            import txsaga

            opened = txsaga.connect(place[1], roles=False, answering=False, standby=standby)
            self._open[place], self._engines[place] = opened, {}

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
    try:
        return BaseHook.get_connection(name)
    except AirflowNotFoundException:
        raise ConfigError(
            f"Airflow connection {name!r} does not exist; create it under Admin, Connections, or set "
            f"AIRFLOW_CONN_{name.upper()}"
        ) from None


def producer_of(broker: Broker, group: str) -> Producer:
    """Return the producer of a group. It answers check-back with UNKNOWN: other processes, which live on, answer."""
    from txsaga.core.decision import LocalState

    return broker.producer(group, checker=lambda question: LocalState.UNKNOWN)


AMBIENT = Ambient()
atexit.register(AMBIENT.close)
at_fork(AMBIENT.start_anew)


class TxSagaHook(BaseHook):
    """A txsaga store as an Airflow connection."""

    conn_name_attr = "txsaga_conn_id"
    default_conn_name = CONN_ID.default
    conn_type = "txsaga"
    hook_name = "TxSaga store"

    def __init__(self, txsaga_conn_id: str | None = None, *, resources: Iterable[str] = ()) -> None:
        super().__init__()
        self.txsaga_conn_id, self.resources = store_of(txsaga_conn_id), tuple(resources)

    def get_conn(self) -> Broker:
        """Return the broker of this process; it stays open, so do not close it."""
        return AMBIENT.broker(self.txsaga_conn_id, self.resources)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the store can be reached, and its identity or the error."""
        import txsaga

        try:
            url = store_url(connection_of(self.txsaga_conn_id))
            with txsaga.connect(url, roles=False, answering=False, patience=2.0) as broker:
                return True, f"this is store {broker.identity.uuid}, incarnation {broker.identity.incarnation}"
        except TxSagaError as reason:
            return False, f"{type(reason).__name__}: {reason}"
