"""
Settings in, broker out.

Wrong arguments are refused before anything is opened; everything opened is closed with the broker.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from txsaga.airflow_host.runs import airflow_at
from txsaga.broker import Broker
from txsaga.config import NAMESPACE, Settings, load, with_namespace
from txsaga.core.announcer import Announcer, Observer
from txsaga.core.arguments import check_count, check_function, check_kind, check_seconds, check_text, list_of
from txsaga.core.fibers import Loops
from txsaga.core.kernel import Kernel
from txsaga.core.retry import PATIENCE, patiently
from txsaga.embedded.server import EmbeddedServer
from txsaga.errors import ConfigError
from txsaga.flows.actions import CODE
from txsaga.lake.cuts_store import PostgresCuts
from txsaga.lake.home_rows_store import PostgresHomeRows
from txsaga.lake.opening import LakeOpener, reachable
from txsaga.lake.table import ROWS_EFFECT, TABLE_EFFECT
from txsaga.resources.broker import StoreParticipant
from txsaga.resources.participant import Enlistable, Participant
from txsaga.resources.services import call_service
from txsaga.store.store import Store
from txsaga.wiring.resources import Participants, Resources

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
AWAY = 1.0
"""Seconds to wait for one broker of several; another can take its place."""
HEARTBEAT = True
"""Whether brokers renew leases on their work; tests that simulate dead owners in a live process turn it off."""


LOWER = "give a text, in lower case"


class PostgresHome:
    """The features that only the home database has."""

    def __init__(self, store: Store, resources: Resources, participants: Participants) -> None:
        self._resources, self._participants = resources, participants
        self.cut = PostgresCuts(store.engine, store.log, store.namespace).cut

    def register(self, name: str, engine: Engine | AsyncEngine) -> None:
        """Register a resource."""
        check_kind(name, str, "the name of a resource", LOWER)
        self._participants.require_free(name)
        self._resources.register(name, engine)

    def enlist(self, name: str, participant: Enlistable | Participant) -> None:
        """Register a participant that is not a database."""
        check_kind(name, str, "the name of a participant", LOWER)
        self._resources.require_free(name)
        self._participants.enlist(name, participant)

    def new_member(self) -> str:
        """Return a member name that is unique within its group."""
        return new_member()


def jitter() -> float:
    """Return a random factor around 1."""
    return random.uniform(0.8, 1.2)


def new_member() -> str:
    """Return a name that no other process has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def in_loop(work: Callable[[], T], *, unbroken: bool = False) -> Coroutine[Any, Any, T]:
    """Run some work to its end within an event loop, suspending only the task."""
    return _stacks()(work, unbroken=unbroken)


@cache
def _stacks() -> Loops:
    try:
        from txsaga.aio.stacks import run
    except ImportError as missing:
        raise ConfigError(f"`async with` needs greenlet ({missing}); pip install 'txsaga[asyncio]'") from missing
    return run


kernel_of = partial(Kernel, services=call_service, in_loop=in_loop, jitter=jitter)
"""Builds a kernel with the parts that every program shares."""


def open_store(url: str) -> Store:
    """Migrate and open the store at a URL."""
    return Store.open(url, create=True)


def connect(
    url: str | None = None,
    *,
    namespace: str | None = None,
    resources: Mapping[str, Engine | AsyncEngine] | None = None,
    participants: Mapping[str, Enlistable] | None = None,
    observers: Iterable[Observer] = (),
    auto_create: bool | None = None,
    roles: bool = True,
    answering: bool = True,
    check_threads: int = 4,
    patience: float = PATIENCE,
    standby: float = 0.0,
    warehouse: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Broker:
    """Open the broker at a URL, at TXSAGA_URL, or on the embedded database; a namespace replaces that of the URL.

    `roles=False` leaves dispatching and check-back to `txsaga engine`; otherwise this process runs them too. Questions
    of check-back to this process are answered in `check_threads` threads, unless `answering=False`. In any case a
    thread renews the leases of work that takes longer than two seconds, so that it is not treated as abandoned.
    If the store becomes unavailable, a send waits `patience` seconds before it fails; if it is down at the start,
    `connect` waits `standby` seconds. New tables are created in the `warehouse`.
    """
    passed = _checked(
        observers, resources, participants, env, roles=roles, auto_create=auto_create, answering=answering
    )
    _check_more(namespace, check_threads, patience=patience, standby=standby)
    settings = Settings.from_env(os.environ if env is None else env)
    given = url or settings.url
    address = with_namespace(given, namespace) if given else None
    found = _resources(settings, resources or {})
    others = _others(settings, participants or {}, found)
    CODE.load(settings.sagas)
    listening = [*passed, *(load(name, "observer") for name in settings.observers)]
    store = others.store = patiently(partial(_store, address, namespace, settings, patience), standby)
    lake = LakeOpener(store, settings, warehouse, embedded=address is None, load=load)
    rows = PostgresHomeRows(store, tcp=lambda: reachable(store, settings))
    kernel = kernel_of(
        store,
        evidence=found.find,
        participants=others.find,
        announce=Announcer(listening),
        member=new_member(),
        auto_create=settings.auto_create if auto_create is None else auto_create,
        effects={TABLE_EFFECT: lake, ROWS_EFFECT: rows},
        tables=lake,
        rows=rows,
    )
    airflow = settings.airflow
    kernel.runs, followers = airflow_at(airflow, settings.airflow_name) if airflow else (None, None)

    def close() -> None:
        for opened in (others, found, store):
            opened.close()

    options: Mapping[str, Any] = {"roles": roles, "answering": answering, "check_threads": check_threads}
    home = PostgresHome(store, found, others)
    return Broker(kernel, home, on_close=close, heartbeat=HEARTBEAT, followers=followers, **options)


def _store(address: str | None, namespace: str | None, settings: Settings, patience: float) -> Store:
    if address:
        return Store.open(address, patience=patience)
    url = with_namespace(embedded_url(settings), namespace)

    def revived() -> str:
        return with_namespace(EmbeddedServer.from_env(settings.embedded).revive().store_url(), namespace)

    return Store.open(url, create=namespace in (None, NAMESPACE), patience=patience, find=revived)


def _resources(settings: Settings, given: Mapping[str, Engine | AsyncEngine]) -> Resources:
    """Collect the databases of the settings and of the caller, and the brokers that act as participants."""
    brokers = {name: partial(_participant, name, url) for name, url in settings.brokers.items()}
    return Resources(settings.resources, given, brokers)


def _others(settings: Settings, given: Mapping[str, Enlistable], found: Resources) -> Participants:
    """Load the participants of the settings and of the caller; refuse one with the name of a database."""
    named = {name: load(place, "participant") for name, place in settings.participants.items()} | dict(given)
    for name in named:
        found.require_free(name)
    return Participants(found.participant, named)


def _checked(
    observers: Iterable[Observer], resources: object, participants: object, env: object, **switches: object
) -> list[Observer]:
    """Refuse arguments of the wrong type before anything is opened; return the observers as a list."""
    listening = list_of(observers, "observers", "give a list of functions")
    for observer in listening:
        check_function(observer, "an observer", "give a function that takes a fact")
    for value, what, advice in (
        (resources, "resources", "give engines by name"),
        (participants, "participants", "give a Folder, Callables or an HttpService by name"),
        (env, "env", "give a mapping"),
    ):
        if value is not None:
            check_kind(value, Mapping, what, advice)
    for what, switch in switches.items():
        if switch is not None:
            check_kind(switch, bool, what, "give True or False")
    return listening


def _check_more(namespace: str | None, check_threads: int, **seconds: float) -> None:
    for what, number in seconds.items():
        check_seconds(number, what)
    check_count(check_threads, "check_threads")
    if namespace is not None:
        check_text(namespace, "the namespace", "name one, or leave it out")


def one_of_many(url: str) -> Broker:
    """Open the broker of a cluster member or participant store; it runs no roles in this process."""
    return connect(url, roles=False, answering=False, patience=AWAY, env={})


def _participant(name: str, url: str) -> Participant:
    return StoreParticipant(one_of_many(url), name=name)


def embedded_url(settings: Settings) -> str:
    """Find or start the embedded database and return its URL."""
    return EmbeddedServer.from_env(settings.embedded).ensure().store_url()
