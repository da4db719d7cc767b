"""`txsaga doctor` on rows that contradict each other, and on stores that are as they should be: what it says mends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy.exc import ProgrammingError

import txsaga
from tests.cli.conftest import Cli
from tests.contracts.samples import (
    COMMIT,
    add,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    opened,
    prepared,
    published,
    row,
    settle,
)
from tests.scene.stored import Stored
from txsaga.broker import Broker
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.checkback.round import CheckBack
from txsaga.testing.checking import check_once
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

Findings = dict[str, dict[str, Any]]


@pytest.fixture
def examine(bare: Cli, home_url: str) -> Callable[[], Findings]:
    """Give a way to examine the store: what was found, by its name."""

    def call() -> Findings:
        return {finding["what"]: finding for finding in bare("doctor", "--json", "--url", home_url).documents}

    return call


@pytest.fixture
def broker(home_url: str) -> Iterator[Broker]:
    open_store(home_url).close()
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        yield broker


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


def mend(stored: Stored, finding: dict[str, Any], **known: str) -> None:
    """Run the statements of a remedy, with what only a person knows."""
    found = re.search("`([A-Z][^`]+)`", finding["remedy"])
    assert found is not None
    for statement in found[1].split("; "):
        for name, value in known.items():
            statement = statement.replace(f"<{name}>", f"'{value}'")
        stored.rows(statement)


@pytest.mark.rule("R7")
def test_a_row_from_the_head_on_is_named_with_its_queue_and_the_remedy_frees_it(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (orders,), (news,) = new_group(store), new_queues(store), new_queues(store, "news")
    published(store, group, row(orders, "o0"), row(news, "n0"))
    drain(store)
    assert examine()["log"]["severity"] == "ok"
    stored.rows(
        "INSERT INTO log (qid, base, n, txid, part, attempt, chunk) VALUES (:qid, 5, 1, 77, 0, 0, 0)", qid=orders
    )
    published(store, group, row(orders, "o1"), row(news, "n1"))
    drain(store)
    found = examine()
    assert found["log"]["severity"] == "error"
    assert "head of queue orders/0 is 1, its log has a stray row at 5 (transaction 77)" in found["log"]["found"]
    assert (found["dispatcher"]["severity"], "skips blocked queues: orders/0" in found["dispatcher"]["found"]) == (
        "warning",
        True,
    )
    assert found["decisions"]["severity"] == "ok", "a row from the head on is no message yet"
    mend(stored, found["log"])
    drain(store)
    found = examine()
    assert {found[what]["severity"] for what in ("log", "dispatcher", "decisions")} == {"ok"}
    assert store.log.bounds([orders])[orders].head == 2


def test_a_row_of_a_message_that_no_tick_has_seen_is_stray(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    half = prepared(store, group, row(qid, "a"))
    stored.rows(
        "INSERT INTO log (qid, base, n, txid, part, attempt, chunk) "
        "SELECT qid, 0, n, txid, part, attempt, chunk FROM half"
    )
    decided(store, end_of(half, COMMIT))
    drain(store)
    mend(stored, examine()["log"])
    drain(store)
    assert store.log.bounds([qid])[qid].head == 1, "it is dispatched once"


def test_a_row_of_an_attempt_that_did_not_win_is_stray(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    life = opened(store, group)
    add(store, life, 1, row(qid, "a"))
    stored.rows(
        "INSERT INTO half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body) "
        "SELECT txid, pgroup, qid, part, attempt + 1, chunk, n, keyed, body FROM half"
    )
    settle(store, life, COMMIT)
    drain(store)
    stored.rows(
        "INSERT INTO log (qid, base, n, txid, part, attempt, chunk) "
        "SELECT qid, 1, n, txid, part, attempt, chunk FROM half ORDER BY attempt DESC LIMIT 1"
    )
    mend(stored, examine()["log"])
    assert store.log.bounds([qid])[qid].head == 1
    assert stored.value("SELECT count(*) FROM log") == 1


def test_what_was_made_a_rollback_is_made_a_commit_for_the_queues_that_wait_too(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (orders,), (news,) = new_group(store), new_queues(store), new_queues(store, "news")
    stored.rows("INSERT INTO log (qid, base, n, txid, part, attempt, chunk) VALUES (:qid, 5, 1, 77, 0, 0, 0)", qid=news)
    half = prepared(store, group, row(orders, "a"), row(news, "b"))
    decided(store, end_of(half, COMMIT))
    drain(store)
    stored.rows("UPDATE op SET decision = 2")
    mend(stored, examine()["decisions"])
    mend(stored, examine()["log"])
    drain(store)
    assert {qid: at.head for qid, at in store.log.bounds([orders, news]).items()} == {orders: 1, news: 1}


def test_a_head_that_was_set_back_is_set_forward_and_nothing_is_lost(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    for body in "abc":
        published(store, group, row(qid, body))
    drain(store)
    stored.rows("UPDATE queue SET head = 1")
    published(store, group, row(qid, "d"))
    drain(store)
    found = examine()["log"]
    assert "was set back to 1, but its log continues to 3" in found["found"]
    mend(stored, found)
    drain(store)
    assert [entry.base for entry in store.log.fetch(qid, 0, 9)] == [0, 1, 2, 3]
    assert examine()["log"]["severity"] == "ok"


def test_a_stray_row_goes_first_where_the_head_was_set_back_too(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    for body in "abc":
        published(store, group, row(qid, body))
    drain(store)
    stored.rows(
        "INSERT INTO log (qid, base, n, txid, part, attempt, chunk) "
        "SELECT qid, 7, n, txid, part, attempt, chunk FROM log WHERE base = 0"
    )
    stored.rows("UPDATE queue SET head = 1")
    for told in ("stray row at 7", "was set back to 1"):
        found = examine()["log"]
        assert told in found["found"]
        mend(stored, found)
    assert (examine()["log"]["severity"], store.log.bounds([qid])[qid].head) == ("ok", 3)


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_keyed_transaction_that_was_dispatched_is_mended_with_its_own_row(
    broker: Broker, stored: Stored, examine: Callable[[], Findings], rolled_back: bool
) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    life = opened(store, group)
    add(store, life, 1, row(qid, "a"))
    settle(store, life, COMMIT)
    drain(store)
    stored.rows("UPDATE tx SET state = 'prepared'")
    stored.rows("UPDATE op SET decision = 2" if rolled_back else "DELETE FROM op")
    found = examine()["decisions"]
    assert ("ROLLBACK" if rolled_back else "is missing") in found["found"]
    mend(stored, found)
    assert examine()["decisions"]["severity"] == "ok"
    assert stored.rows("SELECT t.state, o.decision FROM tx t JOIN op o USING (txid)") == [("committed", 1)]


def test_a_dispatched_message_whose_decision_is_gone_is_named_and_the_remedy_dispatches_nothing_again(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    half = prepared(store, group, row(qid, "a"))
    prepared(store, group, row(qid, "undecided"))
    decided(store, end_of(half, COMMIT))
    drain(store)
    assert examine()["decisions"]["severity"] == "ok"
    stored.rows("DELETE FROM op WHERE txid = :txid", txid=half.txid)
    found = examine()["decisions"]
    assert found["severity"] == "error"
    assert f"transaction {half.txid} was dispatched, but its decision is missing" in found["found"]
    mend(stored, found)
    drain(store)
    assert examine()["decisions"]["severity"] == "ok"
    assert store.log.bounds([qid])[qid].head == 1


def test_a_log_row_of_nothing_is_named_and_the_remedy_takes_it_away(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    store = broker.kernel.store
    (qid,) = new_queues(store)
    stored.rows("INSERT INTO log (qid, base, n, txid, part, attempt, chunk) VALUES (:qid, 0, 1, 77, 0, 0, 0)", qid=qid)
    stored.rows("UPDATE queue SET head = 1")
    found = examine()["decisions"]
    assert (found["severity"], "transaction 77, which is not stored" in found["found"]) == ("error", True)
    mend(stored, found)
    assert examine()["decisions"]["severity"] == "ok"


def test_a_key_that_is_free_again_is_named(broker: Broker, stored: Stored, examine: Callable[[], Findings]) -> None:
    store = broker.kernel.store
    group, (qid,) = new_group(store), new_queues(store)
    life = opened(store, group)
    add(store, life, 1, row(qid, "a"))
    settle(store, life, COMMIT)
    drain(store)
    assert examine()["keys"]["severity"] == "ok"
    stored.rows("DELETE FROM tx")
    found = examine()["keys"]
    assert (found["severity"], f"transaction {life.txid} is committed" in found["found"]) == ("error", True)
    with pytest.raises(ProgrammingError):
        mend(stored, found)
    mend(stored, found, key="order-1")
    assert examine()["keys"]["severity"] == "ok"


# Whether somebody does what has to be done


@pytest.mark.req("RMQ-85", "RMQ-70")
def test_a_question_that_no_member_answers_is_named_at_once(
    broker: Broker, stored: Stored, examine: Callable[[], Findings]
) -> None:
    broker.create_topic("orders", "transaction")
    broker.producer("shop", checker=lambda _: None).prepare_now("orders", b"a")
    stored.let_pass(61)
    drain(broker.kernel.store)
    stored.let_pass(61)
    Heartbeat(broker.kernel).enlist()
    CheckBack(broker.kernel).run_once()
    assert stored.value("SELECT count(*) FROM question") == 1
    assert examine()["producers"]["severity"] == "ok"
    stored.rows("UPDATE half SET born = now()")
    stored.rows("DELETE FROM lease WHERE kind LIKE 'checker:%'")
    found = examine()["producers"]
    assert (found["severity"], found["found"][-4:]) == ("warning", "shop")
    assert "start a process of the group" in found["remedy"]


@pytest.mark.parametrize("age", [0, 61, 660, 90_000])
def test_an_idle_store_in_which_all_is_decided_is_fine_at_any_age(
    broker: Broker, stored: Stored, examine: Callable[[], Findings], age: int
) -> None:
    broker.create_topic("orders", "transaction")
    producer = broker.producer("shop", checker=lambda _: None)
    for end in (producer.commit, producer.roll_back):
        end(producer.prepare_now("orders", b"a"))
    drain(broker.kernel.store)
    check_once(broker)
    stored.let_pass(age)
    stored.let_leases_pass(age)
    assert {what: finding for what, finding in examine().items() if finding["severity"] != "ok"} == {}
