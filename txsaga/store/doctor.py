"""
Examine a home database: server, session settings, pooler, rights, schema, identity, state of the store.

This changes nothing, and the checks are independent: one that can't be done is a finding, and the next one runs
all the same. So the findings also explain why a store can't be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from sqlalchemy import Connection, Engine, NullPool, create_engine

from txsaga.errors import RightsMissing, StoreUnavailable, TxSagaError
from txsaga.store import doctor_server, doctor_store, founding, migrate
from txsaga.store.connection import NETWORK, make_engine, parse_url, transaction, translating
from txsaga.store.finding import Finding, Severity, error, ok, warning
from txsaga.store.store import Store

NEEDED = ("connection", "pooler", "schema", "identity", "store")
"""If one of these fails, no program can open the store."""
Question = Callable[[Connection], Finding]


def examine(url: str) -> list[Finding]:
    """Run all checks that can run; return findings in the order in which they should be fixed."""
    address, namespace = parse_url(url)
    network = {name: value for name, value in NETWORK.items() if name not in address.query}
    # With the settings of the user's own connections, without those that we set.
    plain = create_engine(address, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=network)
    ours = make_engine(address, namespace)
    try:
        return list(_examined(url, plain, ours, namespace))
    finally:
        plain.dispose()
        ours.dispose()


def _examined(url: str, plain: Engine, ours: Engine, namespace: str) -> Iterator[Finding]:
    reached = _asked("connection", plain, doctor_server.reached)
    yield reached
    if reached.severity is Severity.ERROR:
        return
    for what, ask in doctor_server.QUESTIONS.items():
        yield _asked(what, plain, ask)
    yield _told("pooler", lambda: doctor_server.pooler(plain, ours))
    schema, identity = (_told(what, partial(question, ours, namespace)) for what, question in STORE.items())
    yield from (schema, identity)
    if schema.severity is Severity.ERROR:
        return
    for what, look in doctor_store.PLACES.items():
        yield _asked(what, plain, partial(look, namespace=namespace))
    if identity.severity is not Severity.ERROR:
        yield from _state(url)


def _state(url: str) -> Iterator[Finding]:
    try:
        store = Store.open(url)
    except TxSagaError as failure:
        yield _failed("store", failure)
        return
    try:
        for what, look in doctor_store.STATE.items():
            yield _told(what, partial(look, store))
    finally:
        store.close()


def _schema(engine: Engine, namespace: str) -> Finding:
    with transaction(engine) as connection:
        migrate.check(connection, namespace)
    return ok("schema", f"namespace {namespace} has schema {migrate.newest()}")


def _identity(engine: Engine, _: str) -> Finding:
    with transaction(engine) as connection:
        return ok("identity", f"store {founding.recognise(connection)} is at home here")


STORE: dict[str, Callable[[Engine, str], Finding]] = {"schema": _schema, "identity": _identity}


def _asked(what: str, engine: Engine, question: Question) -> Finding:
    def ask() -> Finding:
        with translating(), engine.connect() as connection:
            return question(connection)

    return _told(what, ask)


def _told(what: str, ask: Callable[[], Finding]) -> Finding:
    try:
        return ask()
    except TxSagaError as failure:
        return _failed(what, failure)


def _failed(what: str, failure: TxSagaError) -> Finding:
    """Turn an error into a finding: what is wrong is before its semicolon, the remedy after it."""
    found, _, remedy = str(failure).partition("; ")
    if isinstance(failure, RightsMissing) and what not in NEEDED:
        return ok(what, "not for this login to know")
    if isinstance(failure, StoreUnavailable) and what not in NEEDED:
        return warning(what, f"can't be known: {found}", remedy or "try again")
    if not remedy:
        return error(what, f"can't be known: {found}", "look into the server's log")
    return error(what, found, remedy)
