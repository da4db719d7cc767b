"""The composition root: settings in, broker out. It alone knows which adapter fills which port."""

from __future__ import annotations

import os
import random
import secrets
import socket
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError

from txsaga.adapters.airflow.followers import airflow_at
from txsaga.adapters.brokers import LoggedParticipant, StoreParticipant
from txsaga.adapters.embedded.server import EmbeddedServer
from txsaga.adapters.enlisting import Participants
from txsaga.adapters.evidence import SqlEvidence
from txsaga.adapters.lake.opening import open_lake, reachable
from txsaga.adapters.postgres.cuts import PostgresCuts
from txsaga.adapters.postgres.home_rows import PostgresHomeRows
from txsaga.adapters.postgres.joining import JoinedSends
from txsaga.adapters.postgres.store import PostgresStore
from txsaga.adapters.services import call_service
from txsaga.adapters.xa import participant_for
from txsaga.config import RESOURCE, Settings
from txsaga.engine.announce import Announcer
from txsaga.engine.broker import Broker
from txsaga.engine.cluster.facade import BrokerCluster
from txsaga.engine.cluster.members import RETRY, Members
from txsaga.engine.kernel import Kernel
from txsaga.engine.patience import PATIENCE, patiently
from txsaga.engine.saga.code import CODE
from txsaga.errors import ConfigError, EmbeddedDatabaseError, ResourceUnknown
from txsaga.model.arguments import check_count, check_function, check_kind, check_seconds, list_of
from txsaga.model.cluster import Cluster, check, check_one, check_stores, read
from txsaga.model.table import ROWS_EFFECT, TABLE_EFFECT
from txsaga.ports.evidence import Evidence
from txsaga.ports.observer import Observer
from txsaga.ports.participants import Enlistable, Participant

CONNECT = {"psycopg": 10, "psycopg2": 10, "pymysql": 10, "mysqldb": 10}
"""Seconds by driver: a host that does not answer keeps nobody for longer, unless the URL says otherwise."""
AWAY = 1.0
"""Seconds that one broker of many is waited for: another takes its place."""
HEARTBEAT = True
"""Whether brokers hold what they work on; tests that play dead owners in a living process do without."""

_every_resources: weakref.WeakSet[Resources] = weakref.WeakSet()


def _leave_sessions_to_parent() -> None:
    for resources in list(_every_resources):
        resources.leave_to_parent()


os.register_at_fork(after_in_child=_leave_sessions_to_parent)


class Resources:
    """Registered databases by name; each engine under one name.

    An engine that is passed under a name that the environment names too takes its place.
    """

    def __init__(
        self, urls: Mapping[str, str], engines: Mapping[str, Engine], brokers: Mapping[str, str] | None = None
    ) -> None:
        self._brokers, self._opened = brokers or {}, list[Participant]()
        self._engines: dict[str, Engine] = {}
        for name, engine in engines.items():
            self.register(name, engine)
        self._owned = {
            name: resource_engine(url, f"{RESOURCE}{name.upper()}") for name, url in urls.items() if name not in engines
        }
        for name, engine in self._owned.items():
            self.register(name, engine)
        self._evidence: dict[str, Evidence] = {}
        self._participants: dict[str, Participant] = {}
        _every_resources.add(self)

    def register(self, name: str, engine: Engine) -> None:
        """Register a database."""
        if not isinstance(name, str) or not name or name != name.lower() or not name.isprintable():
            raise ConfigError(
                f"resource {name!r} must be named in lower case: others find it by the environment's {RESOURCE}<NAME>"
            )
        check_kind(engine, Engine, f"the engine of {name!r}", "give a SQLAlchemy Engine")
        if self._engines.get(name, engine) is not engine:
            raise ConfigError(f"resource {name!r} is registered already; choose another name")
        self._engines[name] = engine

    def require_free(self, name: str) -> None:
        """Refuse a name for something else than a database when a database has it."""
        if name in self._engines:
            raise ConfigError(f"resource {name!r} is registered already; choose another name")

    def find(self, named: object) -> tuple[str, Evidence]:
        """Return the name and the evidence of a registered name or engine."""
        check_kind(named, (str, Engine), "the resource", "give the name of a registered one, or its engine")
        name = named if isinstance(named, str) else self._name_of(named)
        if name not in self._engines:
            raise ResourceUnknown(name, list(self._engines))
        if name not in self._evidence:
            self._evidence[name] = SqlEvidence(self._engines[name], name=name)
        return name, self._evidence[name]

    def participant(self, name: str) -> Participant:
        """Return a registered database or broker as one that takes part in two-phase commit."""
        if name in self._brokers and name not in self._participants:
            self._participants[name] = open_participant(name, self._brokers[name])
            self._opened.append(self._participants[name])
        if name not in self._engines and name not in self._participants:
            raise ResourceUnknown(name, [*self._engines, *self._participants, *self._brokers])
        if name not in self._participants:
            self._participants[name] = participant_for(self._engines[name], name)
        return self._participants[name]

    def close(self) -> None:
        """Dispose of the engines that were made here."""
        for engine in self._owned.values():
            engine.dispose()
        for participant in self._opened:
            participant.close()

    def leave_to_parent(self) -> None:
        """Forget every open session, as a forked child must: two processes on one would read each other's answers."""
        for engine in self._engines.values():
            engine.dispose(close=False)

    def _name_of(self, engine: object) -> str:
        for name, registered in self._engines.items():
            if registered is engine:
                return name
        raise ResourceUnknown(repr(engine), list(self._engines))


class PostgresHome:
    """What only the home database can do."""

    def __init__(self, store: PostgresStore, resources: Resources, participants: Participants) -> None:
        self._store, self._resources, self._participants = store, resources, participants
        self.cut = PostgresCuts(store.engine, store.log, store.namespace).cut

    def join(self, connection: Connection, kernel: Kernel, group: int) -> JoinedSends:
        """Send inside the caller's transaction."""
        return JoinedSends(connection, self._store.namespace, kernel, group)

    def register(self, name: str, engine: Engine) -> None:
        """Register a resource."""
        self._participants.require_free(name)
        self._resources.register(name, engine)

    def enlist(self, name: str, participant: Enlistable | Participant) -> None:
        """Register a participant that is no database."""
        self._resources.require_free(name)
        self._participants.enlist(name, participant)

    def new_member(self) -> str:
        """Make a name that no other member of a group has."""
        return new_member()

    def jitter(self) -> float:
        """Draw a factor around 1."""
        return jitter()


def jitter() -> float:
    """Draw a factor around 1."""
    return random.uniform(0.8, 1.2)


def new_member() -> str:
    """Make a name that no other process has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def open_store(url: str) -> PostgresStore:
    """Migrate and open the store of a URL."""
    return PostgresStore.open(url, create=True)


def connect(
    url: str | None = None,
    *,
    resources: Mapping[str, Engine] | None = None,
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
    """Open the broker of a URL, of TXSAGA_URL, or of the embedded database.

    `roles=False` leaves dispatching and check-back to `txsaga engine`; otherwise this process runs them too. What
    check-back asks of this process is answered in `check_threads` threads, unless `answering=False`. In any case a
    thread holds what is worked on here for longer than two seconds, so that nobody takes it for abandoned.
    A store that went away is waited for so many seconds of `patience` before a send fails, and one that is down at
    the start so many seconds of `standby`. Tables that are created lie in the `warehouse`.
    """
    passed = _checked(
        observers, resources, participants, env, roles=roles, auto_create=auto_create, answering=answering
    )
    for seconds, what in ((patience, "patience"), (standby, "standby")):
        check_seconds(seconds, what)
    check_count(check_threads, "check_threads")
    settings = Settings.from_env(os.environ if env is None else env)
    address = url or settings.url
    found = Resources(settings.resources, resources or {}, settings.brokers)
    others = _others(settings, participants or {}, found)
    CODE.load(settings.sagas)
    listening = [*passed, *(load(name, "observer") for name in settings.observers)]
    store = others.store = patiently(partial(_store, address, settings, patience), standby)
    lake = open_lake(store, settings, warehouse, embedded=address is None, load=load)
    rows = PostgresHomeRows(store, tcp=lambda: reachable(store, settings))
    kernel = Kernel(
        store,
        evidence=found.find,
        participants=others.find,
        announce=Announcer(listening),
        member=new_member(),
        auto_create=settings.auto_create if auto_create is None else auto_create,
        effects={TABLE_EFFECT: lake, ROWS_EFFECT: rows},
        tables=lake,
        rows=rows,
        services=call_service,
        jitter=jitter,
    )
    if settings.airflow:
        kernel.runs, kernel.followers = airflow_at(settings.airflow, settings.airflow_name)

    def close() -> None:
        for opened in (others, found, store):
            opened.close()

    options: Mapping[str, Any] = {"roles": roles, "answering": answering, "check_threads": check_threads}
    return Broker(kernel, PostgresHome(store, found, others), on_close=close, heartbeat=HEARTBEAT, **options)


def _store(address: str | None, settings: Settings, patience: float) -> PostgresStore:
    return PostgresStore.open(address, patience=patience) if address else open_store(embedded_url(settings))


def _others(settings: Settings, given: Mapping[str, Enlistable], found: Resources) -> Participants:
    """Open the participants of the settings and of the caller; none has the name of a database."""
    named = {name: load(place, "participant") for name, place in settings.participants.items()} | dict(given)
    for name in named:
        found.require_free(name)
    return Participants(found.participant, named)


def _checked(
    observers: Iterable[Observer],
    resources: object,
    participants: object,
    env: object,
    **switches: object,
) -> list[Observer]:
    """Refuse what is of another kind before anything is opened; return the observers as a list."""
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


def cluster(
    definition: Cluster | Mapping[str, object],
    brokers: Mapping[str, str | Broker],
    *,
    name: str = "cluster",
    coordinator: Broker | None = None,
    tx_log: Path | None = None,
    retry: float = RETRY,
    seed: int | None = None,
) -> BrokerCluster:
    """Bind brokers and a policy: the brokers by URL or open, and the one that coordinates their transactions.

    A broker that is away is looked at again after `retry` seconds. With `tx_log` each step of two-phase commit is
    written to a file per broker in that folder. `seed` makes the random policy repeatable.
    """
    found = definition if isinstance(definition, Cluster) else read(name, definition)
    check(found)
    check_brokers(found, brokers, coordinator)
    check_seconds(retry, "retry")
    said, stores = dict[str, str](), dict[str, UUID]()

    def opened(leaf: str, broker: Broker) -> None:
        if coordinator is not None and broker.identity.uuid == coordinator.identity.uuid:
            raise ConfigError(f"broker {leaf!r} is the coordinator itself, and brokers only vote; give another")
        if (belongs := broker.cluster) is not None:
            said[leaf] = belongs
        check_one(found, said)
        stores[leaf] = broker.identity.uuid
        check_stores(stores)
        if coordinator is not None:
            participant = StoreParticipant(broker, name=leaf)
            logged = participant if tx_log is None else LoggedParticipant(participant, tx_log)
            coordinator.enlist(participant.name, logged)

    ways = {leaf: _way_to(brokers[leaf]) for leaf in found.leaves()}
    ours = [leaf for leaf, broker in brokers.items() if isinstance(broker, str)]
    members = Members(ways, opened, ours=ours, retry=retry)
    try:
        members.available()
    except BaseException:
        members.close()
        raise
    return BrokerCluster(
        found, members, coordinator, generator=random.Random(seed), new_id=lambda: secrets.token_hex(16)
    )


def check_brokers(definition: Cluster, brokers: Mapping[str, str | Broker], coordinator: object) -> None:
    """Raise `ConfigError` unless every broker can be reached and there is one coordinator where it takes one."""
    check_kind(brokers, Mapping, "brokers", "give a URL or an open broker by each name")
    for broker in brokers.values():
        check_kind(broker, (str, Broker), "a broker", "give its URL, or open it with txsaga.connect()")
    leaves = set(definition.leaves())
    if missing := sorted(leaves ^ brokers.keys()):
        raise ConfigError(
            f"cluster {definition.name!r} lists {', '.join(sorted(leaves))}; {', '.join(missing)} is either listed or "
            "given, not both: give a URL or an open broker for each"
        )
    if coordinator is not None:
        check_kind(coordinator, Broker, "the coordinator", "give exactly one open broker that is none of the cluster's")
    if definition.xa and coordinator is None:
        raise ConfigError(
            f"cluster {definition.name!r} is for XA and has no coordinator: a broker is a resource, it does not "
            "coordinate itself; give coordinator=txsaga.connect(…)"
        )
    if coordinator is not None and not definition.xa:
        raise ConfigError(f"cluster {definition.name!r} has a coordinator and is not for XA; set xa, or leave it out")


def _way_to(broker: str | Broker) -> Callable[[], Broker]:
    if isinstance(broker, Broker):
        return lambda: broker
    return lambda: connect(broker, roles=False, answering=False, patience=AWAY, env={})


def open_participant(name: str, url: str) -> Participant:
    """Open another store of ours as a participant; it runs no roles for us."""
    return StoreParticipant(connect(url, roles=False, answering=False, patience=AWAY, env={}), name=name)


def resource_engine(url: str, named: str) -> Engine:
    """Make the engine of a database that holds evidence; nothing is opened yet."""
    try:
        asked = make_url(url)
        limit = CONNECT.get(asked.get_driver_name())
        if limit is None or "connect_timeout" in asked.query:
            return create_engine(asked)
        return create_engine(asked, connect_args={"connect_timeout": limit})
    except (ArgumentError, ValueError):
        raise ConfigError(f"{named} is no database URL; write dialect+driver://user:password@host/database") from None
    except ImportError as missing:
        raise ConfigError(f"{named} needs a driver that is not installed: {missing}; install it") from missing


def embedded_url(settings: Settings) -> str:
    """Find or start the embedded database and return its URL."""
    server = EmbeddedServer.from_env(settings.embedded).ensure().database("txsaga")
    try:
        return server.url("txsaga", driver="psycopg", socket=True)
    except EmbeddedDatabaseError:  # a path may be too long for a socket
        return server.url("txsaga", driver="psycopg")


def load(name: str, what: str) -> Any:  # noqa: ANN401  # whoever asks for it knows what it must be
    """Load a function named module:callable."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as reason:
        raise ConfigError(f"{what} {name!r} can't be loaded: {reason}") from reason
    except (Exception, SystemExit) as raised:  # the user's module: whatever it raises is its own fault
        told = f"{type(raised).__name__}: {raised}"
        raise ConfigError(f"{what} {name!r} can't be loaded, its module raised {told}") from raised
