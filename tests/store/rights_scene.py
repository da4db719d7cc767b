"""A namespace with things of a rival in it, and a login for each right: what the tests of rights try themselves on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import make_url

import txsaga
from tests.services.databases import fresh_name
from tests.store.logins import Logins, logins
from tests.store.rights_table import BODY, DONE, NOTHING, P
from txsaga.broker import Broker
from txsaga.store.connection import parse_url
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

__all__ = ["Scene", "outcome", "scene"]


class Scene:
    """A namespace with things of a rival's in it, and a login for each right."""

    def __init__(self, made: Logins) -> None:
        self.made = made
        self.me = {right: made.new(right) for right in Right}
        self.rival = made.new(P)
        with ExitStack() as opened:

            def broker(url: str) -> Broker:
                return opened.enter_context(txsaga.connect(url, roles=False, env={}))

            owner, rival, me = broker(made.url), broker(made.url_of(self.rival)), broker(made.url_of(self.me[P]))
            (qid,) = owner.create_topic("orders", "transaction", queues=1).qids
            owner.create_topic("later", "delay", queues=1)
            owner.create_topic("backout", queues=1)
            owner.create_group("workers", backout="backout")
            theirs, mine = (each.producer("of-" + name, checker=lambda _: None)
                            for each, name in ((rival, "rival"), (me, "me")))  # fmt: skip
            receipt, own = theirs.prepare_now("orders", b"secret"), mine.prepare_now("orders", b"mine")
            key, own_key = (each.transaction(key="k").__enter__() for each in (theirs, mine))
            key.prepare()
            own_key.prepare()
            theirs.commit(theirs.prepare_now("orders", b"public"))
            later = rival.producer("later").send("later", b"x", delay=timedelta(hours=1))
            owner.roles()[0].run_once()
            owner.consumer("workers", ["orders"]).receive()
            self.names: dict[str, object] = {
                "s": f'"{made.namespace}"', "owner": make_url(made.url).username, "rival": self.rival, "qid": qid,
                "plain": receipt.txid, "own_plain": own.txid, "key": key.txid, "own_key": own_key.txid,
                "later": later.txid, "theirs": receipt.group, "own": own.group,
                "token": f"'\\x{receipt.token.hex()}'::bytea", "later_token": f"'\\x{later.token.hex()}'::bytea",
                "later_group": later.group, "body": BODY,
            }  # fmt: skip
        made.run("INSERT INTO doubt (txid, pgroup) VALUES ({plain}, {theirs})".format(**self.names))
        made.run("INSERT INTO question (txid, pgroup, member, patience) VALUES ({plain}, {theirs}, 'you', '3s'), "
                 "({own_plain}, {own}, 'me', '3s')".format(**self.names))  # fmt: skip
        made.run("INSERT INTO doubt (txid, pgroup) VALUES ({own_plain}, {own})".format(**self.names))
        made.run("INSERT INTO claim (grp, qid, base, size, open, attempts, until, txid) "
                 "VALUES ('workers', {qid}, 77, 1, 1, 1, 'infinity', {key})".format(**self.names))  # fmt: skip
        made.run("INSERT INTO event (txid, what, who, why) VALUES (9, 'COMMIT', 'anna', 'why not')")
        made.run("INSERT INTO dead_letter SELECT 1, 'workers', 'orders', qid, 99, now(), 1, '', '[]', '', now(), '' "
                 "FROM queue LIMIT 1")  # fmt: skip

    def tried(self, right: Right, sql: str, opened_by: str | None = None) -> str:
        """Try a statement as a login, in a transaction that is rolled back; with something opened before."""
        me = self.me[right]
        url = self.made.url_of(me) if opened_by is None else self.made.url
        names = self.names | {"me": me}
        with psycopg.connect(parse_url(url)[0].set(drivername="postgresql").render_as_string(False)) as connection:
            connection.execute(f'SET search_path = "{self.made.namespace}"')
            if opened_by is not None:
                connection.execute(opened_by.format(**names))
                connection.execute(f"SET LOCAL SESSION AUTHORIZATION {me}")
            try:
                return outcome(connection, sql.format(**names))
            except psycopg.Error as refused:
                return refused.sqlstate or str(refused)
            finally:
                connection.rollback()

    def left(self, right: Right, sql: str, look: str) -> str:
        """Tell whether the owner finds something behind what a login did, in a transaction that is rolled back."""
        names = self.names | {"me": self.me[right]}
        url = parse_url(self.made.url)[0].set(drivername="postgresql").render_as_string(False)
        with psycopg.connect(url) as connection:
            connection.execute(f'SET search_path = "{self.made.namespace}"')
            connection.execute(f"SET LOCAL SESSION AUTHORIZATION {self.me[right]}")
            connection.execute(sql.format(**names))
            connection.execute("RESET SESSION AUTHORIZATION")
            try:
                return outcome(connection, look.format(**names))
            finally:
                connection.rollback()


def outcome(connection: psycopg.Connection, sql: str) -> str:
    """Run statements; tell whether the last one did or found something."""
    done = connection.execute(sql)
    while done.nextset():
        pass
    changes = done.statusmessage is not None and done.statusmessage.partition(" ")[0] in ("SELECT", "UPDATE", "DELETE")
    return NOTHING if changes and done.rowcount == 0 else DONE


@pytest.fixture(scope="module")
def scene(home_database: str) -> Iterator[Scene]:
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('rights')}"
    open_store(url).close()
    with logins(url) as made:
        yield Scene(made)
