"""What the engine right lets a login do, and what happens without it."""

# Fixtures are named where they are asked for.
# ruff: noqa: F811

from __future__ import annotations

import logging
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import ProgrammingError

import txsaga
from tests.contracts.samples import drain
from tests.scene.stored import Stored
from tests.store.logins import Logins
from tests.store.opened_as import (  # noqa: F401  # fixtures
    Open,
    engine,
    everything,
    made,
    open_as,
    operator,
    read,
    run_roles,
)
from txsaga.broker import Broker
from txsaga.checkback.one_check import OneCheck
from txsaga.core.decision import Decision, LocalState
from txsaga.core.role_loop import Loop
from txsaga.errors import RightsMissing, UnknownTransaction
from txsaga.store.connection import parse_url
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres


def rival_of(made: Logins) -> Connection:
    """Connect as another producer, past the product."""
    return create_engine(parse_url(made.url_with(Right.PRODUCER))[0], poolclass=NullPool).connect()


class TestEngine:
    def test_settles_what_nobody_decided(self, home_url: str, engine: Broker, operator: Broker, open_as: Open) -> None:
        producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
        receipt = producer.prepare_now("orders", b"a")
        tx = producer.transaction(key="order-1").__enter__()
        tx.prepare()
        run_roles(engine)
        for _ in range(2):
            Stored(home_url).let_pass(3600)
            run_roles(engine)
        engine.kernel.checkers.register(engine.kernel.store.registry.find_group("shop"), lambda _: LocalState.COMMIT)  # type: ignore[arg-type]
        Stored(home_url).let_pass(3600)
        run_roles(engine)
        states = {
            view.txid: view.state for view in operator.kernel.store.overview.transactions(undecided=False, limit=9)
        }
        assert states == {receipt.txid: "committed", tx.txid: "committed"}

    def test_decides_a_plain_half_that_it_has_no_token_of(
        self, home_url: str, engine: Broker, operator: Broker, open_as: Open
    ) -> None:
        producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
        receipt = producer.prepare_now("orders", b"a")
        Stored(home_url).let_pass(3600)
        doubt = engine.kernel.store.doubts.of(receipt.txid)
        assert doubt is not None and doubt.token == b""
        assert OneCheck(engine.kernel).ask(receipt.txid, lambda _: LocalState.COMMIT).decision is Decision.COMMIT
        assert engine.kernel.store.overview.decisions([receipt.txid]) == {receipt.txid: Decision.COMMIT}

    def test_a_producer_needs_the_token(self, operator: Broker, open_as: Open) -> None:
        producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
        with pytest.raises(UnknownTransaction):
            producer.commit(producer.prepare_now("orders", b"a")._replace(token=b""))

    @pytest.mark.rule("R10")
    def test_what_names_nothing_that_is_there_stops_no_other_check(
        self, home_url: str, engine: Broker, operator: Broker, open_as: Open
    ) -> None:
        producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
        strange, sound = producer.prepare_now("orders", b"a"), producer.prepare_now("orders", b"b")
        stored, registry = Stored(home_url), engine.kernel.store.registry
        stored.rows(f"UPDATE half SET evidence = 999 WHERE txid = {strange.txid}")
        stored.rows(f"INSERT INTO doubt (txid, pgroup, check_at) SELECT n, {sound.group}, now() - interval '1 day' "
                    "FROM generate_series(1000, 1005) n")  # fmt: skip
        engine.kernel.checkers.register(registry.find_group("shop"), lambda _: LocalState.COMMIT)  # type: ignore[arg-type]
        for _ in range(3):
            run_roles(engine)
            stored.let_pass(3600)
        assert stored.rows(f"SELECT txid FROM op WHERE txid IN ({strange.txid}, {sound.txid})") == [(sound.txid,)]
        assert stored.value("SELECT count(*) FROM doubt WHERE txid >= 1000") == 0

    def test_adds_and_drops_partitions(
        self, home_url: str, made: Logins, engine: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored, log = Stored(home_url), engine.kernel.store.log
        assert log.extend_partitions(3_000_000) == 4
        stored.rows("SELECT setval('tx_seq', 2500000)")
        assert log.drop_partitions() == 2
        assert stored.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'half'::regclass") == 2

    @pytest.mark.rule("R13")
    def test_copies_out_what_is_parked_and_others_see_no_more_of_it_than_before(
        self, home_url: str, made: Logins, engine: Broker, operator: Broker, open_as: Open
    ) -> None:
        operator.create_topic("short", "transaction", queues=1, retention=timedelta(0))
        stored, log = Stored(home_url), engine.kernel.store.log
        selling, rival = open_as(Right.PRODUCER), open_as(Right.PRODUCER)
        shop = selling.producer("shop", checker=lambda _: None)
        for body in [b"%d" % n for n in range(10)]:
            shop.commit(shop.prepare_now("short", body))
        parked = shop.prepare_now("short", b"late")
        with engine.kernel.store.ledgers.open() as ledger:
            ledger.park(parked.txid, "out of checks")
        assert stored.value("SELECT role FROM producer_group WHERE name = 'shop'") is not None
        log.extend_partitions(1_000_000)
        stored.rows("SELECT setval('tx_seq', 1500000)")
        run_roles(engine)
        assert stored.rows("SELECT txid FROM half_0") == [(parked.txid,)]
        assert stored.value("SELECT count(*) FROM half") == 1
        assert rival.kernel.store.halves.views(parked.txid) == []
        with pytest.raises(ProgrammingError, match="permission denied"), closing(rival_of(made)) as connection:
            connection.execute(text(f"SELECT txid FROM {stored.namespace}.half_0"))
        assert [doubt.txid for doubt in operator.kernel.store.overview.doubts(limit=9)] == [parked.txid]
        assert shop.commit(parked).won
        drain(engine.kernel.store)
        assert read(open_as(Right.CONSUMER), "short") == [b"late"]

    def test_weighs_topics_and_lets_groups_expire(
        self, home_url: str, engine: Broker, operator: Broker, open_as: Open
    ) -> None:
        operator.create_topic("sized", queues=1, retention_bytes=10)
        operator.create_group("gone", expires=timedelta(hours=1))
        producer = open_as(Right.PRODUCER).producer("plain")
        producer.send("sized", b"a")
        run_roles(engine)
        stored = Stored(home_url)
        stored.rows("INSERT INTO claim (grp, qid, base, size, open, attempts, until, message, born, body) "
                    "SELECT 'gone', min(qid), 0, 64, 1, 0, now(), 'x', now(), 'body' FROM queue")  # fmt: skip
        stored.rows("UPDATE consumer_group SET seen = now() - interval '1 day'")
        stored.rows("SELECT setval('tx_seq', 1500000)")
        engine.kernel.store.log.extend_partitions(1_000_000)
        producer.send("sized", b"b")
        run_roles(engine)
        assert stored.value("SELECT count(*) FROM consumer_group") == 0
        assert stored.value("SELECT cause FROM dead_letter") == "the group expired"
        assert stored.value("SELECT count(*) FROM weight") > 0

    def test_makes_a_cut(self, engine: Broker) -> None:
        with engine.cut() as cut:
            assert cut.heads == {}


@pytest.mark.parametrize("right", [Right.PRODUCER, Right.CONSUMER, Right.OPERATOR])
def test_without_the_engine_right_no_roles_run_and_one_line_says_so(
    open_as: Open, operator: Broker, right: Right, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "txsaga"):
        broker = open_as(right, roles=True)
        if right is Right.PRODUCER:
            broker.producer("plain").send("news", b"a")
    assert [record.message for record in caplog.records if "txsaga engine" in record.message]
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    with pytest.raises(RightsMissing, match="db grant"):
        broker.kernel.store.log.extend_partitions(10_000_000)


def test_without_rights_nothing_opens(made: Logins) -> None:
    with pytest.raises(RightsMissing, match="db grant"):
        txsaga.connect(made.url_with(), env={})


def test_four_logins_deliver_one_message_with_roles_in_threads(open_as: Open, operator: Broker) -> None:
    loop = Loop(open_as(Right.ENGINE).roles())
    loop.start()
    try:
        with closing(open_as(Right.CONSUMER).stream("readers", ["orders"])) as stream:
            producer = open_as(Right.PRODUCER).producer("shop", checker=lambda _: None)
            producer.commit(producer.prepare_now("orders", b"whole"))
            message = next(iter(stream.messages(wait=30)))
            assert message.body == b"whole"
    finally:
        loop.stop()
