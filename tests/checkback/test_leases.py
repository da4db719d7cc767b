"""Work that takes long is not asked about while its process lives, and at once when that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text

from tests.scene.members import Member, age, closed
from tests.scene.shop import Shop, order, says
from txsaga import COMMIT, ROLLBACK, UNKNOWN
from txsaga.checkback.heartbeat import checkers_of
from txsaga.checkback.judge import CheckResult
from txsaga.checkback.one_check import YOUNG, OneCheck
from txsaga.checkback.profile import LEASE
from txsaga.checkback.runs import RunState
from txsaga.core.decision import Decision
from txsaga.errors import StoreError

MOST_OF_IT = LEASE.total_seconds() * 0.9
TOO_LONG = LEASE.total_seconds() * 1.1


@pytest.fixture(autouse=True)
def all_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the heartbeat hold what has only just begun."""
    monkeypatch.setattr("txsaga.checkback.work_in_progress.TYPICAL", 0.0)


@pytest.fixture
def till(tmp_path: Path) -> Engine:
    """Give a database of local work."""
    engine = create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sale (id int)"))
    return engine


def rounds(shop: Shop, owner: Member, engine: Member) -> None:
    """Let many leases pass, in which the owner lives and the engine looks."""
    for _ in range(6):
        shop.later(MOST_OF_IT)
        shop.deliver()
        owner.beat()
        engine.lead()


@pytest.mark.parametrize("key", [None, "order-42"])
def test_work_of_many_leases_is_never_asked_about_while_its_process_lives(any_shop: Shop, key: str | None) -> None:
    heard: list[object] = []
    owner, engine = Member(any_shop), Member(any_shop)
    with owner.producer(checker=heard.append).transaction(key=key) as tx:
        tx.send(order())
        tx.prepare()
        owner.beat()
        rounds(any_shop, owner, engine)
        owner.answer()
    assert heard == []
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.rule("R10", "R1")
@pytest.mark.parametrize("key", [None, "order-42"])
def test_local_work_of_many_leases_is_not_fenced_while_its_process_lives(
    any_shop: Shop, till: Engine, key: str | None
) -> None:
    owner, engine = Member(any_shop, till=till), Member(any_shop, till=till)
    with owner.producer().transaction(key=key) as tx:
        tx.send(order())
        with tx.local("till") as connection:
            owner.beat()
            rounds(any_shop, owner, engine)
            connection.execute(text("INSERT INTO sale VALUES (1)"))
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.rule("R13")
def test_an_open_block_of_many_leases_is_not_rolled_back_while_its_process_lives(any_shop: Shop) -> None:
    owner, engine = Member(any_shop), Member(any_shop)
    with owner.producer().transaction(key="order-42") as tx:
        tx.join_life()
        owner.beat()
        rounds(any_shop, owner, engine)
        tx.send(order())
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.req("RMQ-08")
def test_when_its_process_dies_the_work_is_asked_about_as_soon_as_its_lease_is_over(any_shop: Shop) -> None:
    heard: list[object] = []
    owner, other = Member(any_shop), Member(any_shop)
    left = owner.producer().transaction().__enter__()
    left.send(order())
    left.prepare()
    owner.beat()  # the last one
    other.producer(checker=heard.append)
    any_shop.later(1)
    any_shop.deliver()
    seen = []
    for pause in (MOST_OF_IT - 1, TOO_LONG - MOST_OF_IT):
        any_shop.later(pause)
        other.beat()
        other.lead()
        other.answer()
        seen.append(len(heard))
    assert seen == [0, 1]


class Host:
    """A host of flows that says what a test wants."""

    def __init__(self, state: RunState = RunState.ALIVE) -> None:
        self.said, self.asked = state, list[str]()

    def state(self, run: str) -> RunState:
        self.asked.append(run)
        return self.said


def left_by(member: Member, run: str | None, till: str | None = None) -> int:
    """Leave a closed transaction of a flow, or of none, as a process that died."""
    tx = member.producer(checker=says(UNKNOWN)).transaction(key=f"of {run}", run=run).__enter__()
    tx.send(order())
    return closed(member, tx, till)


@pytest.mark.rule("R5")
@pytest.mark.parametrize("state", [RunState.ALIVE, RunState.UNREACHABLE])
def test_a_flow_that_may_be_alive_is_neither_fenced_nor_asked_about_nor_counted(
    any_shop: Shop, till: Engine, state: RunState
) -> None:
    """A day of waiting for an approval: nobody renews its lease, and no evidence is there yet."""
    host = Host(state)
    member = Member(any_shop, till=till)
    member.broker.ask_runs(host)
    by_evidence, by_word = left_by(member, "flow-1", "till"), left_by(member, "flow-2")
    age(any_shop)
    for _ in range(4):
        any_shop.later(6 * 3600)
        member.beat()
        member.lead()
        member.answer()
    for txid in (by_evidence, by_word):
        found = any_shop.store.overview.checks(txid)
        assert found is not None and found.asked == 0
        assert any_shop.state(txid) == "sealed"
    assert set(host.asked) == {"flow-1", "flow-2"}
    _, evidence = member.kernel.resource("till")
    assert evidence.read(any_shop.transaction(by_evidence).id) is None


@pytest.mark.rule("R5")
def test_a_flow_that_is_over_is_judged_by_evidence_and_never_committed_by_its_run(any_shop: Shop, till: Engine) -> None:
    member = Member(any_shop, till=till)
    host = Host(RunState.OVER)
    member.broker.ask_runs(host)
    txid = left_by(member, "marked success", "till")
    age(any_shop)
    member.lead()
    assert any_shop.state(txid) == "rolled_back"
    assert (host.asked, any_shop.bodies()) == (["marked success"], [])


@pytest.mark.rule("R5")
def test_where_no_host_is_known_a_flow_is_taken_for_alive(any_shop: Shop) -> None:
    owner, engine = Member(any_shop), Member(any_shop)
    owner.producer(checker=says(UNKNOWN))
    txid, other = left_by(owner, "flow-1"), left_by(owner, None)
    age(any_shop)
    for _ in range(20):
        owner.beat()
        engine.lead()
        owner.answer()
    assert (any_shop.state(txid), any_shop.state(other)) == ("sealed", "parked")


@pytest.mark.rule("R5")
@pytest.mark.hole("H5")
def test_a_host_that_fails_says_nothing_and_stops_nobody(any_shop: Shop) -> None:
    class Broken(Host):
        def state(self, run: str) -> RunState:
            raise ConnectionError("no route to host")

    member = Member(any_shop)
    member.broker.ask_runs(Broken())
    flow = left_by(member, "flow-1")
    plain = member.producer(checker=says(UNKNOWN)).prepare_now("orders", b"")
    age(any_shop)
    member.beat()
    member.lead()
    found = any_shop.store.overview.checks(flow)
    assert found is not None
    assert (found.asked, found.parked) == (0, None)
    other = any_shop.store.overview.checks(plain.txid)
    assert other is not None and other.asked == 1


def test_a_member_is_alive_even_while_nothing_can_be_held(any_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    member = Member(any_shop)
    producer = member.producer()
    with producer.transaction(key="order-42") as tx:
        tx.send(order())
        with monkeypatch.context() as patch, pytest.raises(StoreError):
            patch.setattr(any_shop.store.doubts, "hold", full)
            member.beat()
    kind = checkers_of(producer.group.id)
    assert any_shop.store.leases.alive([kind])[kind] == [member.name]


def test_whoever_asks_by_himself_leaves_a_half_alone_that_is_young_or_at_work(any_shop: Shop, till: Engine) -> None:
    """A sensor asks about one half; its local work still runs, and its group says nothing else."""
    owner, asking = Member(any_shop, till=till), OneCheck(Member(any_shop, till=till).kernel)
    seen: list[CheckResult] = []
    with owner.producer().transaction() as tx:
        tx.send(order())
        with tx.local("till") as connection:
            assert tx.txid is not None
            seen.append(asking.ask(tx.txid, says(ROLLBACK)))
            age(any_shop)
            owner.beat()
            seen.append(asking.ask(tx.txid, says(ROLLBACK)))
            connection.execute(text("INSERT INTO sale VALUES (1)"))
    assert seen == [CheckResult(why=YOUNG)] * 2
    assert any_shop.bodies() == ["a chair"]


@pytest.mark.parametrize("key", [None, "order-42"])
def test_whoever_asks_by_himself_settles_what_a_dead_process_left(any_shop: Shop, key: str | None) -> None:
    owner, asking = Member(any_shop), OneCheck(Member(any_shop).kernel)
    left = owner.producer().transaction(key=key).__enter__()
    left.send(order())
    left.prepare()
    assert left.txid is not None
    owner.beat()  # the last one
    any_shop.later(MOST_OF_IT)
    assert asking.ask(left.txid, says(COMMIT)).why == YOUNG
    any_shop.later(TOO_LONG)
    assert asking.ask(left.txid, says(COMMIT)).decision is Decision.COMMIT


@pytest.mark.rule("R5")
def test_whoever_asks_by_himself_asks_the_run_first(any_shop: Shop, till: Engine) -> None:
    member = Member(any_shop, till=till)
    member.broker.ask_runs(host := Host(RunState.UNREACHABLE))
    txid = left_by(member, "flow-1", "till")
    any_shop.later(6 * 3600)
    answered = OneCheck(member.kernel).ask(txid, says(COMMIT))
    assert (answered.decision, answered.counted) == (None, False)
    _, evidence = member.kernel.resource("till")
    assert evidence.read(any_shop.transaction(txid).id) is None
    host.said = RunState.OVER
    assert OneCheck(member.kernel).ask(txid, says(COMMIT)).decision is Decision.ROLLBACK
