"""
The home database: one pool, and a class for each kind of row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import ProgrammingError

from txsaga.checkback.doubts_store import Doubts
from txsaga.checkback.leases_store import Leases
from txsaga.checkback.questions_store import Questions
from txsaga.consume.claims_store import Claims
from txsaga.consume.groups_store import ConsumerGroups, DeadLetterStore, Queues
from txsaga.consume.log_store import Log
from txsaga.core.failure import on_failure
from txsaga.core.identity import StoreId
from txsaga.core.retry import PATIENCE
from txsaga.errors import BrokerClosed, IdentityChanged
from txsaga.flows.flows_store import Flows
from txsaga.flows.work_store import WorkStore
from txsaga.inspect.overview_store import Overview
from txsaga.messages.halves_store import HalfStore, Schedule
from txsaga.messages.hot_statements import Hot
from txsaga.messages.ledger_store import Ledgers
from txsaga.messages.registry_store import Registry
from txsaga.resources.reservations_store import Reservations
from txsaga.store import founding, migrate, sql_files
from txsaga.store.connection import follow, is_lost, make_engine, parse_url, transaction
from txsaga.store.right import EVERY_RIGHT, SIGN, Login, Right

SQL = sql_files.read("store/sql/founding.sql")


class Store:
    """One namespace of a PostgreSQL database."""

    def __init__(
        self, engine: Engine, namespace: str, identity: StoreId, login: Login, patience: float = PATIENCE
    ) -> None:
        owner = login.owner
        hot = Hot(f'"{namespace}"', owner=owner)
        self.engine, self.namespace, self.rights = engine, namespace, login.rights
        self.halves = HalfStore(engine, hot, identity, patience)
        self.ledgers = Ledgers(engine, namespace, owner=owner)
        self.work = WorkStore(engine, namespace, str(identity), owner=owner)
        self.reservations = Reservations(engine, namespace)
        self.flows = Flows(engine, namespace)
        self.log = Log(engine, hot, namespace)
        self.schedule = Schedule(engine, namespace)
        self.doubts = Doubts(engine, hot, namespace, owner=owner)
        self.questions = Questions(engine, namespace, self.halves.views_of, owner=owner)
        self.leases = Leases(engine, namespace)
        self.queues = Queues(engine, namespace)
        self.claims = Claims(engine, namespace, owner=owner)
        self.groups = ConsumerGroups(engine, namespace)
        self.dead_letters = DeadLetterStore(engine, namespace)
        self.registry = Registry(engine, namespace, identity, owner=owner)
        self.overview = Overview(engine, namespace, identity, self.log)
        self._guard(engine)

    @classmethod
    def open(
        cls, url: str, *, create: bool = False, patience: float = PATIENCE, find: Callable[[], str] | None = None
    ) -> Store:
        """Open the store of a URL, migrating it first when asked to.

        `patience` is how long a store may be unavailable; `find` then returns its URL, which may have changed.
        """
        address, namespace = parse_url(url)
        engine = make_engine(address, namespace)
        if find is not None:
            follow(engine, find)
        with on_failure(engine.dispose):
            if create:
                migrate.migrate(engine, namespace, renew=False)
            with transaction(engine) as connection:
                identity, login = enter(connection, namespace)
        return cls(engine, namespace, identity, login, patience)

    def close(self) -> None:
        """Close every connection; no new one can be opened."""
        event.listen(self.engine, "do_connect", _closed)
        self.halves.close()
        self.work.close()
        self.log.close()
        self.schedule.close()
        self.doubts.close()
        self.claims.close()
        self.engine.dispose()

    def _guard(self, engine: Engine) -> None:
        """Refuse connections to a server other than the one the store was opened on (R8)."""
        identity = self.registry.identity
        sql = founding.at_home(self.namespace)

        def check(connection: Any, _: object) -> None:
            with connection.cursor() as cursor:
                row = cursor.execute(sql).fetchone()
            connection.rollback()
            if row is None or (row[0], row[1]) != (identity.uuid, identity.incarnation) or not row[2]:
                raise IdentityChanged(f"the server at the URL is no longer store {identity}; connect again")

        event.listen(engine, "connect", check)


def _closed(*_: object) -> None:
    raise BrokerClosed


def enter(connection: Connection, namespace: str) -> tuple[StoreId, Login]:
    """Return the store's identity and the login's rights, or raise what is wrong with schema, place or server.

    One query answers. If anything is wrong, the same is queried piece by piece, and the failing check gives the remedy.
    """
    if (found := _at_once(connection, namespace)) is not None:
        return found
    from txsaga.store import granting

    migrate.check(connection, namespace)
    return founding.recognise(connection), granting.login(connection, namespace)


def _at_once(connection: Connection, namespace: str) -> tuple[StoreId, Login] | None:
    s = f'"{namespace}"'
    server = founding.SERVER.format(namespace=namespace)
    question = SQL["enter"].format(s=s, server=server, home=founding.HOME, oldest=migrate.OLDEST)
    try:
        rows = connection.exec_driver_sql(question, {"rights": [*Right], "sign": f"{s}.{SIGN}"}).all()
    except ProgrammingError as error:  # a table or a right is missing
        if is_lost(error):
            raise
        connection.rollback()
        return None
    if len(rows) != 1 or rows[0][0] != migrate.newest():
        return None
    _, uuid, incarnation, births, owner, rights = rows[0]
    return StoreId(uuid, incarnation, tuple(births)), Login(
        owner, EVERY_RIGHT if owner else frozenset(map(Right, rights))
    )
