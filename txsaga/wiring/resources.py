"""
Databases, and brokers that act as participants, by the names that transactions use.

A forked child must not use its parent's sessions: two processes would read each other's answers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError

from txsaga.config import RESOURCE
from txsaga.core.arguments import check_kind, kind_of
from txsaga.core.forking import at_fork
from txsaga.core.redacting import redacted
from txsaga.errors import ConfigError, ResourceUnknown, TxSagaError
from txsaga.evidence.database import SqlEvidence
from txsaga.evidence.driver_errors import reached
from txsaga.evidence.location import EvidenceLocation
from txsaga.evidence.ports import Evidence
from txsaga.resources.participant import Enlistable, Participant
from txsaga.store.connection import require_readable

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from txsaga.store.store import Store


class Participants:
    """Every participant of a broker by its name: databases, and participants other than databases.

    If a name means another thing in the next process, the uuid recorded with each branch reveals it, and nothing is
    finished there.
    """

    def __init__(
        self, database: Callable[[str], Participant], enlisted: Mapping[str, Enlistable | Participant]
    ) -> None:
        self.store: Store  # set when the broker opens it
        self._database = database
        self._given: dict[str, Enlistable] = {}
        self._made: dict[str, Participant] = {}
        for name, given in enlisted.items():
            self.enlist(name, given)

    def enlist(self, name: str, given: Enlistable | Participant) -> None:
        """Register a participant that is no database; a user's own participant may replace another."""
        if not isinstance(name, str) or not name or name != name.lower() or not name.isprintable():
            raise ConfigError(f"participant {name!r} must be named in lower case, as databases are")
        if callable(getattr(given, "enlist", None)):  # no other attribute is read: that would connect
            self._made[name] = cast(Participant, given)
            return
        if not callable(getattr(given, "participant", None)):
            raise ConfigError(
                f"participant {name!r} is {kind_of(given)}; give a Folder, Callables, an HttpService, "
                "or a participant of your own"
            )
        given = cast(Enlistable, given)
        if self._given.get(name, given) is not given:
            raise ConfigError(f"participant {name!r} is registered already; choose another name")
        self._given[name] = given

    def require_free(self, name: str) -> None:
        """Refuse a name for a database if a participant has it."""
        if name in self._given or name in self._made:
            raise ConfigError(f"resource {name!r} is registered already, as no database; choose another name")

    def find(self, name: str) -> Participant:
        """Return a participant; a name that is not registered here is looked up among the databases."""
        if name not in self._given and name not in self._made:
            return self._database(name)
        if name not in self._made:
            self._made[name] = self._given[name].participant(name, self.store)
        return self._made[name]

    def close(self) -> None:
        """Close the participants."""
        for participant in self._made.values():
            participant.close()


CONNECT = {"psycopg": 10, "psycopg2": 10, "pymysql": 10, "mysqldb": 10}
"""Connect timeout in seconds, by driver, for hosts that do not answer; the URL can override it."""

THREADS = {
    **{"psycopg": "psycopg", "psycopg_async": "psycopg", "asyncpg": "psycopg"},
    **{"aiomysql": "pymysql", "asyncmy": "pymysql", "aiosqlite": "pysqlite"},
}
"""The driver that threads use for a database, by the driver of the user's engine."""

SHARED = {"host", "port"}
"""URL options that asyncpg and psycopg share."""

_every_resources: weakref.WeakSet[Resources] = weakref.WeakSet()


def _leave_sessions_to_parent() -> None:
    for resources in list(_every_resources):
        resources.leave_to_parent()


at_fork(_leave_sessions_to_parent)


class Resources:
    """Registered databases by name; each engine has one name.

    An engine passed by the caller overrides the environment's URL of the same name.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        engines: Mapping[str, Engine | AsyncEngine],
        brokers: Mapping[str, Callable[[], Participant]] | None = None,
    ) -> None:
        self._brokers = brokers or {}
        self._opened: list[Participant] = []
        self._engines: dict[str, Engine] = {}
        self._loops: dict[str, AsyncEngine] = {}
        self._urls, self._owned = urls, dict[str, Engine]()
        self._evidence: dict[str, SqlEvidence] = {}
        self._locations: dict[str, EvidenceLocation] = {}
        self._participants: dict[str, Participant] = {}
        for name, engine in engines.items():
            self.register(name, engine)
        for name in urls:
            if name not in engines:
                self.register(name, self._own(name, urls[name]))
        _every_resources.add(self)

    def register(self, name: str, engine: Engine | AsyncEngine) -> None:
        """Register a database; with an AsyncEngine, evidence is read through an engine of our own, in threads."""
        if not isinstance(name, str) or not name or name != name.lower() or not name.isprintable():
            raise ConfigError(
                f"resource {name!r} must be named in lower case: others find it by the environment's {RESOURCE}<NAME>"
            )
        if not isinstance(engine, Engine):
            _check_async(engine, f"the engine of {name!r}", "give a SQLAlchemy Engine or AsyncEngine")
            self._register_loops(name, engine)
        elif self._given(name) in (None, engine):
            self._engines[name] = engine
        else:
            raise ConfigError(f"resource {name!r} is registered already; choose another name")

    def _register_loops(self, name: str, engine: AsyncEngine) -> None:
        if name not in self._engines:
            self._engines[name] = self._own(name, self._urls.get(name) or for_threads(engine.url, name))
        elif self._loops.get(name, engine) is not engine or self._engines[name] is not self._owned.get(name):
            raise ConfigError(f"resource {name!r} is registered already; choose another name")
        self._loops[name] = engine
        if name in self._evidence:
            self._evidence[name].loops = engine
        if name in self._participants:
            self._participants[name].loops = engine  # type: ignore[attr-defined]  # a database's participant

    def require_free(self, name: str) -> None:
        """Refuse a participant name that a database already has."""
        if name in self._engines:
            raise ConfigError(f"resource {name!r} is registered already; choose another name")

    def find(self, named: object) -> tuple[str, Evidence]:
        """Return the name and evidence of a database, given its name or engine."""
        if not isinstance(named, str | Engine):
            _check_async(named, "the resource", "give the name of a registered one, or its engine")
        name = named if isinstance(named, str) else self._name_of(named)
        if name not in self._engines:
            raise ResourceUnknown(name, list(self._engines))
        if name not in self._evidence:
            engine, loops = self._engines[name], self._loops.get(name)
            self._evidence[name] = SqlEvidence(engine, name=name, loops=loops, where=self._where(name))
        return name, self._evidence[name]

    def participant(self, name: str) -> Participant:
        """Return a registered database or broker as a participant in two-phase commit."""
        if name in self._brokers and name not in self._participants:
            self._participants[name] = self._brokers[name]()
            self._opened.append(self._participants[name])
        if name not in self._engines and name not in self._participants:
            raise ResourceUnknown(name, [*self._engines, *self._participants, *self._brokers])
        if name not in self._participants:
            engine, loops = self._engines[name], self._loops.get(name)
            self._participants[name] = participant_for(engine, name, where=self._where(name), loops=loops)
        return self._participants[name]

    def close(self) -> None:
        """Dispose of the engines and close the participants created here."""
        for engine in self._owned.values():
            engine.dispose()
        for participant in self._opened:
            participant.close()

    def leave_to_parent(self) -> None:
        """Drop every open session without closing it, as a forked child must: the parent uses them."""
        for engine in (*self._engines.values(), *(each.sync_engine for each in self._loops.values())):
            engine.dispose(close=False)

    def _where(self, name: str) -> EvidenceLocation:
        """Return where a resource keeps its rows; cached, so a caller with an open session needs no second one."""
        if name not in self._locations:
            self._locations[name] = EvidenceLocation(self._engines[name], name)
        return self._locations[name]

    def _own(self, name: str, url: str | URL) -> Engine:
        owned = self._owned[name] = resource_engine(url, f"{RESOURCE}{name.upper()}")
        return owned

    def _given(self, name: str) -> Engine | AsyncEngine | None:
        return self._loops.get(name) or self._engines.get(name)

    def _name_of(self, engine: object) -> str:
        for name in self._engines:
            if self._given(name) is engine:
                return name
        url = getattr(engine, "url", None)
        raise ResourceUnknown(repr(engine) if url is None else redacted(str(url)), list(self._engines))


def _check_async(engine: object, what: str, advice: str) -> None:
    from sqlalchemy.ext.asyncio import AsyncEngine

    check_kind(engine, AsyncEngine, what, advice)


def for_threads(url: URL, name: str) -> URL:
    """Return a URL for threads to the database of an AsyncEngine."""
    driver = url.get_driver_name()
    if driver not in THREADS:
        raise ConfigError(
            f"the engine of {name!r} is of the driver {driver!r}, which is not known here; name the database for "
            f"check-back too: set {RESOURCE}{name.upper()}"
        )
    if driver == "asyncpg" and (own := sorted({*url.query} - SHARED)):
        raise ConfigError(
            f"the URL of {name!r} has options of asyncpg's ({', '.join(own)}), which psycopg does not know, by which "
            f"check-back asks; set {RESOURCE}{name.upper()} to a URL for psycopg"
        )
    return url.set(drivername=f"{url.get_backend_name()}+{THREADS[driver]}")


def resource_engine(url: str | URL, named: str) -> Engine:
    """Create the engine of a database that holds evidence, without connecting."""
    try:
        asked = make_url(url)
        require_readable(asked, named)
        limit = CONNECT.get(asked.get_driver_name())
        if limit is None or "connect_timeout" in asked.query:
            return create_engine(asked)
        return create_engine(asked, connect_args={"connect_timeout": limit})
    except (ArgumentError, ValueError):
        raise ConfigError(f"{named} is not a database URL; write dialect+driver://user:password@host/db") from None
    except ImportError as missing:
        raise ConfigError(f"{named} needs a driver that is not installed: {missing}; install it") from missing


def unreachable(name: str, url: str) -> str | None:
    """Return why a database can't be reached from this process; None if it can."""
    try:
        engine = resource_engine(url, f"{RESOURCE}{name.upper()}")
        try:
            with reached(name, engine):
                return None
        finally:
            engine.dispose()
    except TxSagaError as failure:
        return str(failure)


def participant_for(
    engine: Engine, name: str, *, where: EvidenceLocation | None = None, loops: AsyncEngine | None = None
) -> Participant:
    """Return the participant for a database; with the `where` of its evidence, the tables are located once."""
    match engine.dialect.name:
        case "postgresql":
            from txsaga.resources.postgres import PostgresParticipant

            return PostgresParticipant(engine, name=name, where=where, loops=loops)
        case "mysql" | "mariadb":
            from txsaga.resources.mysql import MysqlParticipant

            return MysqlParticipant(engine, name=name, where=where, loops=loops)
        case "sqlite":
            from txsaga.resources.sqlite import SqliteParticipant

            return SqliteParticipant(engine, name=name, where=where, loops=loops)
        case other:
            raise ConfigError(
                f"resource {name!r} is of kind {other!r}, which takes no part in coordinated transactions; "
                "the databases that do are postgresql, mariadb and mysql, and sqlite as the last of one"
            )
