"""Transactions without a key: nothing is written of them before their end, and whoever comes first with it wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from tests.scene.members import until
from txsaga.core.decision import Decision
from txsaga.errors import DecidedOtherwise, StoreUnavailable, TransactionError
from txsaga.flows.branch import BranchState, Vote
from txsaga.flows.branches_store import BranchStore, conclusions
from txsaga.flows.calls import BranchVote, DecisionRequest, Fence
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.owner import BlockOwner
from txsaga.flows.recovery import Orphans, Recovery
from txsaga.store.pipeline import PipelineConnection

pytestmark = pytest.mark.postgres

UNTOUCHED = {"current": START, "mortgage": START}
PAID = {"current": START - 10, "mortgage": START + 10}


def transfer(tx: Coordinated) -> None:
    """Move ten, and tell."""
    for name, change in (("current", -10), ("mortgage", 10)):
        with tx.on(name) as connection:
            pay(connection, change)
    tx.send(TRANSFERS, b"ten")


def recover(bank: Bank) -> int:
    """Let recovery take for dead whoever holds votes and has not decided."""
    return Recovery(bank.broker.kernel, lone=timedelta(0)).run_once()


def written(bank: Bank) -> list[Any]:
    """Return the rows of transactions and of their branches."""
    return [*bank.stored.rows("SELECT txid FROM tx"), *bank.stored.rows("SELECT txid FROM branch")]


def before(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Let others act before an owner takes a step."""
    taken = getattr(BlockOwner, step)

    def late(owner: BlockOwner, *rest: object) -> object:
        act()
        return taken(owner, *rest)

    monkeypatch.setattr(BlockOwner, step, late)


@pytest.mark.rule("R9")
def test_the_decision_is_the_first_thing_that_is_written(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    before(monkeypatch, "decide", lambda: found.append((written(bank), len(bank.prepared()))))
    with bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
    assert found == [([], 2)]
    assert (bank.balances(), bank.told()) == (PAID, ["ten"])
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.COMMITTED}


@pytest.mark.rule("R9")
def test_an_owner_that_comes_behind_the_fence_commits_nothing(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    before(monkeypatch, "decide", lambda: recover(bank))
    with (
        pytest.raises(DecidedOtherwise, match=r"ROLLBACK stands; .*pass key="),
        bank.producer.coordinated("current", "mortgage") as tx,
    ):
        transfer(tx)
    assert (bank.balances(), bank.told(), bank.prepared()) == (UNTOUCHED, [], [])
    assert tx.decision is Decision.ROLLBACK


@pytest.mark.rule("R9")
def test_what_is_prepared_behind_the_fence_is_rolled_back_and_its_owner_commits_nothing(bank: Bank) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    transfer(tx)
    work = tx._owner.work
    first = work.ask(["current"])
    assert recover(bank) == 1
    second = work.ask(["mortgage"])
    assert len(bank.prepared()) == 1
    votes = work.named({**first, **second})  # type: ignore[dict-item]
    assert tx._owner.decide(Decision.COMMIT, "late", votes=votes) is Decision.ROLLBACK
    work.leave()  # and it dies before it has told anybody
    assert recover(bank) == 1
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])


@pytest.mark.rule("R12")
def test_the_fence_stands_against_the_end_of_a_last_resource_too(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def fenced() -> None:
        (found,) = taken
        bank.broker.kernel.store.branches.write([Fence(found, "recovery", "its owner is gone")])

    before(monkeypatch, "end", fenced)
    with (
        pytest.raises(DecidedOtherwise, match=r"ROLLBACK stands; .*pass key="),
        bank.producer.coordinated("current") as tx,
    ):
        with tx.on("current") as connection:
            pay(connection, -10)
        assert tx.txid is not None
        taken.append(tx.txid)
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])


@pytest.mark.rule("R9")
@pytest.mark.parametrize("voted", [["current"], ["current", "mortgage"]])
def test_an_owner_that_died_before_the_decision_leaves_what_recovery_finds_by_its_name(
    bank: Bank, voted: list[str]
) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    transfer(tx)
    tx._owner.work.ask(voted)
    tx._owner.work.leave()
    assert (written(bank), len(bank.prepared())) == ([], len(voted))
    assert recover(bank) == len(voted)
    assert (bank.balances(), bank.prepared(), bank.told()) == (UNTOUCHED, [], [])
    (event,) = bank.broker.kernel.store.overview.history(tx.txid or 0)
    assert (event.what, event.who) == ("ROLLBACK", "recovery")


@pytest.mark.rule("R9")
@pytest.mark.parametrize("held", [1, 3])
def test_words_that_are_under_way_keep_nobody_else_waiting(bank: Bank, held: int) -> None:
    lives = [bank.left(decided=False, account=account) for account in (1, 2, 3, 4)]
    branches = bank.broker.kernel.store.branches
    assert isinstance(branches, BranchStore)
    words = [DecisionRequest(life, Decision.COMMIT, "its owner", "late", resources=[1]) for life in lives[:held]]
    under_way = PipelineConnection(branches._engine)
    under_way.connection().execute("BEGIN")
    under_way.exchange([branches._conclude.call(*conclusions(words))])
    recovery = Recovery(bank.broker.kernel, lone=timedelta(0), fresh=timedelta(0))
    until(lambda: recovery.run_once() >= 0 and len(bank.prepared()) == 2 * held)
    assert branches.written([life.txid for life in lives]).keys() == {life.txid for life in lives[held:]}
    bank.left(account=5)
    assert recovery.run_once() == 2  # what is decided is told in spite of them
    assert not any(sight.away for sight in recovery.seen.values())
    under_way.close()
    until(lambda: recovery.run_once() >= 0 and not bank.prepared())
    assert (bank.balances(), bank.balances(5)) == (UNTOUCHED, {"current": -10, "mortgage": 10})


@pytest.mark.rule("R9")
def test_branches_that_an_earlier_version_shared_are_finished(bank: Bank) -> None:
    kernel, first = bank.broker.kernel, bank.left(decided=False)
    branches = kernel.store.branches
    (other,) = branches.numbers(first.group, 1)
    named = [kernel.participant(name)[0].id for name in bank.engines]
    votes = [BranchVote(number, 1, Vote.PREPARED) for number in (1, 2)]
    words = [
        DecisionRequest(first, Decision.COMMIT, "its owner", "the block ended", votes=votes, resources=named),
        DecisionRequest(other, Decision.COMMIT, "its owner", "done in the branches of the first"),
    ]
    with branches._lines.taken() as line:  # one commit of both, as that version wrote it
        line.exchange([branches._conclude.call(*conclusions(words))])
    assert Recovery(kernel, fresh=timedelta(0)).run_once() == 2
    assert (bank.balances(), bank.prepared()) == (PAID, [])
    known = branches.written([first.txid, other.txid])
    assert [known[life.txid].decision for life in (first, other)] == [Decision.COMMIT] * 2
    assert (set(bank.states(first.txid).values()), bank.states(other.txid)) == ({BranchState.COMMITTED}, {})


def test_fences_of_a_round_take_no_longer_than_that(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, hands = list[tuple[int, ...]](), [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: hands[0])
    for account in range(1, 5):
        bank.left(decided=False, account=account)
    kernel = bank.broker.kernel
    orphans, branches = Orphans(kernel, timedelta(0)), type(kernel.store.branches)

    def late(_: object, fences: Sequence[Fence]) -> None:
        asked.append(tuple(fence.txid for fence in fences))
        hands[0] += 0.6
        raise StoreUnavailable("another session holds a lock")

    with monkeypatch.context() as slow:
        slow.setattr(branches, "write", late)
        for _ in range(3):
            assert orphans.settle(kernel.reach("current")) == (0, ())
    first, *_ = asked
    alone = [(txid,) for txid in first]
    one, two, three, four = alone
    assert (
        asked
        == [
            *(first, first[:2], one, two),  # and no more of them in this round
            *(first[2:], three, four, one),  # who was late comes last
            *(two, three, four, one),
        ]
    )
    assert orphans.settle(kernel.reach("current")) == (4, ())


def test_an_owner_is_given_time_to_decide(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = [1_000.0]
    monkeypatch.setattr("time.monotonic", lambda: hands[0])
    recovery = Recovery(bank.broker.kernel)
    bank.left(decided=False)
    for _ in range(2):
        assert recovery.run_once() == 0
        hands[0] += 15
    hands[0] += 15
    assert recovery.run_once() == 2
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])


def test_two_recoveries_roll_back_what_nobody_decided_once(bank: Bank) -> None:
    lives = [bank.left(decided=False, account=account) for account in (1, 2, 3)]
    assert recover(bank) + recover(bank) == 6
    for life in lives:
        assert len(bank.broker.kernel.store.overview.history(life.txid)) == 1


@pytest.mark.rule("R9")
def test_what_an_owner_decided_while_recovery_looked_is_left_to_it(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    transfer(tx)
    work = tx._owner.work
    votes = work.named(work.prepare())
    look = bank.broker.kernel.store.branches.written

    def decided(txids: Any) -> Any:
        found = look(txids)
        monkeypatch.undo()
        tx._owner.decide(Decision.COMMIT, "the block ended", votes=votes)
        return found

    monkeypatch.setattr(type(bank.broker.kernel.store.branches), "written", lambda _, txids: decided(txids))
    assert recover(bank) == 0
    assert len(bank.prepared()) == 2
    tx._owner.finish(Decision.COMMIT)
    work.leave()
    assert bank.balances() == PAID


@pytest.mark.req("WM-45")
def test_a_branch_that_somebody_commits_before_the_decision_is_told_to_its_owner(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def overruled() -> None:
        with bank.engines["mortgage"].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            (gid,) = [each for each in bank.prepared() if each.endswith(":2.1")]
            connection.exec_driver_sql(f"COMMIT PREPARED '{gid}'")
        recover(bank)

    before(monkeypatch, "decide", overruled)
    with pytest.raises(DecidedOtherwise), bank.producer.coordinated("current", "mortgage") as tx:
        for name, change in (("current", -10), ("mortgage", 10)):
            with tx.on(name) as connection:
                pay(connection, change)
    assert bank.balances() == {"current": START, "mortgage": START + 10}
    assert "resource 'mortgage': found committed while ROLLBACK was decided" in caplog.text


@pytest.mark.parametrize("need", ["a ballot", "a lane", "much to send"])
def test_what_needs_its_row_before_the_end_has_it_written_down(bank: Bank, need: str) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
        assert written(bank) == []
        match need:
            case "a ballot":
                tx.ballot("release", "anna")
                assert tx.vote("release", "anna", yes=True)
            case "a lane":
                with tx.lane("mortgage") as connection:
                    pay(connection, 1, account=2)
            case _:
                for _ in range(3):
                    tx.send(TRANSFERS, b"x" * 3 * 1024 * 1024)
        assert len(written(bank)) >= 3
    assert bank.balances() == PAID
    assert tx.decision is Decision.COMMIT


def test_what_is_fenced_can_not_be_written_down(bank: Bank) -> None:
    with pytest.raises(DecidedOtherwise), bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
        assert tx.txid is not None
        bank.broker.kernel.store.branches.write([Fence(tx.txid, "recovery", "its owner is gone")])
        tx.ballot("release", "anna")
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])
    assert tx.decision is Decision.ROLLBACK


def test_a_handle_on_rows_that_is_never_written_to_changes_nothing(bank: Bank) -> None:
    bank.stored.rows("CREATE TABLE IF NOT EXISTS ledger_of_day (id int PRIMARY KEY)")
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.rows(f"{bank.stored.namespace}.ledger_of_day")
        transfer(tx)
    assert (bank.balances(), tx.decision, bank.prepared()) == (PAID, Decision.COMMIT, [])


@pytest.mark.rule("R2")
def test_work_that_begins_while_the_votes_are_under_way_is_refused_and_not_split_off(bank: Bank) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    with tx.on("current") as connection:
        pay(connection, -10)
    votes = tx._owner.work.prepare()
    with tx.on("mortgage") as connection:  # by a thread that nobody has joined
        pay(connection, 10)
    with pytest.raises(TransactionError, match="'mortgage' began while the votes were under way"):
        tx._owner.work.named(votes)
    tx.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])
