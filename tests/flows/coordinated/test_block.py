"""One outcome for two databases and a message, whatever fails in between."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from tests.contracts.apart import apart
from tests.contracts.samples import PATIENCE, start
from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from tests.scene.elsewhere import Elsewhere
from tests.scene.gate import gate
from tests.scene.patience import eventually
from tests.scene.probe import Probe
from txsaga.core.decision import Decision
from txsaga.core.records import Doubt
from txsaga.errors import (
    AlreadyCommitted,
    ConfigError,
    HeuristicRollback,
    IntegrityViolated,
    ResourceUnknown,
    TransactionClosed,
    TransactionError,
    UnknownTopic,
    VotedNo,
)
from txsaga.flows.branch import BranchState
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.enlisted import Enlisted
from txsaga.inspect.preview import undo_of
from txsaga.inspect.timeline_steps import steps_of

pytestmark = [pytest.mark.postgres, pytest.mark.core]

UNTOUCHED = {"current": START, "mortgage": START}
PAID = {"current": START - 10, "mortgage": START + 10}


class Stop(Exception):
    """What the user's code raises."""


def transfer(tx: Coordinated, text: str = "10 from current to mortgage") -> None:
    """Move ten, and tell."""
    with tx.on("current") as connection:
        pay(connection, -10)
    with tx.on("mortgage") as connection:
        pay(connection, 10)
    tx.send(TRANSFERS, text.encode())


@pytest.mark.req("IBM-02", "IBM-04", "IBM-46")
def test_both_databases_and_the_message_are_there_or_nothing_is(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
        assert bank.balances() == UNTOUCHED
    assert bank.balances() == PAID
    assert bank.told() == ["10 from current to mortgage"]
    assert tx.decision is Decision.COMMIT
    assert tx.txid is not None
    assert bank.states(tx.txid) == {"current": BranchState.COMMITTED, "mortgage": BranchState.COMMITTED}


@pytest.mark.req("IBM-04", "IBM-60", "WM-19")
def test_an_exception_leaves_nothing_anywhere(bank: Bank) -> None:
    with pytest.raises(Stop), bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
        raise Stop
    assert (bank.balances(), bank.told(), bank.prepared()) == (UNTOUCHED, [], [])
    assert tx.decision is Decision.ROLLBACK
    assert tx.txid is not None
    assert bank.states(tx.txid) == {"current": BranchState.ROLLED_BACK, "mortgage": BranchState.ROLLED_BACK}


@pytest.mark.req("WM-15", "WM-44")
def test_a_vote_of_no_rolls_everything_back_and_says_whose_it_was(bank: Bank) -> None:
    with bank.engines["mortgage"].begin() as connection:
        connection.exec_driver_sql("alter table account add unique (balance) deferrable initially deferred")
        connection.exec_driver_sql(f"insert into account values (2, {START + 10})")
    with pytest.raises(IntegrityViolated) as told, bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
    assert "mortgage" in "".join(told.value.__notes__)
    assert (bank.balances(), bank.told(), bank.prepared()) == (UNTOUCHED, [], [])
    assert tx.decision is Decision.ROLLBACK


@pytest.mark.parametrize("names", [("current", "mortgage"), ("current",)])
def test_a_topic_that_is_deleted_before_the_decision_rolls_everything_back(bank: Bank, names: tuple[str, ...]) -> None:
    with bank.producer.coordinated(*names) as tx:
        tx.send(TRANSFERS, b"so that it is known here")
    with pytest.raises(UnknownTopic), bank.producer.coordinated(*names) as tx:
        for name in names:
            with tx.on(name) as connection:
                pay(connection, -10)
        tx.send(TRANSFERS, b"paid")
        apart(bank.broker).delete_topic(TRANSFERS)
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])
    assert tx.decision is Decision.ROLLBACK
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.ROLLED_BACK}


@pytest.mark.req("IBM-57")
def test_a_statement_that_failed_and_was_dropped_is_a_no(bank: Bank) -> None:
    with pytest.raises(VotedNo), bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
        with tx.on("mortgage") as connection:
            try:
                connection.exec_driver_sql("select 1 / 0")
            except Exception:  # noqa: BLE001  # what careless code does
                pass
    assert (bank.balances(), bank.told(), bank.prepared()) == (UNTOUCHED, [], [])


@pytest.mark.req("WM-47")
@pytest.mark.parametrize(("key", "fees"), [(None, []), ("fee-7", ["fee"])])
def test_one_resource_alone_commits_in_one_phase(
    bank: Bank, log_of: list[str], key: str | None, fees: list[str]
) -> None:
    with bank.producer.coordinated("current", "mortgage", key=key) as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        for fee in fees:
            tx.send(TRANSFERS, fee.encode())
    assert bank.balances() == {"current": START - 10, "mortgage": START}
    assert bank.told() == fees
    assert "Voting" not in log_of
    assert tx.txid is not None
    assert bank.states(tx.txid) == {"current": BranchState.COMMITTED, "mortgage": BranchState.COMMITTED}


def test_one_resource_beside_messages_commits_in_one_phase(bank: Bank, log_of: list[str]) -> None:
    with bank.producer.coordinated("current") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        tx.send(TRANSFERS, b"fee")
    assert (bank.balances()["current"], bank.told()) == (START - 10, ["fee"])
    assert "Voted" not in log_of
    assert "Ended" in log_of
    assert tx.txid is not None
    assert bank.states(tx.txid) == {"current": BranchState.COMMITTED}


@pytest.mark.req("WM-47")
def test_a_branch_that_only_read_leaves_at_its_vote(bank: Bank, log_of: list[str]) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        with tx.on("current") as connection:
            connection.exec_driver_sql("select balance from account").scalar_one()
        with tx.on("mortgage") as connection:
            pay(connection, 10)
    assert bank.balances() == {"current": START, "mortgage": START + 10}
    assert log_of.count("Finishing") == 1
    assert bank.prepared() == []


@pytest.mark.req("IBM-02")
def test_messages_alone_are_decided_like_rows(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.send(TRANSFERS, b"nothing moved")
    assert bank.told() == ["nothing moved"]
    assert tx.decision is Decision.COMMIT


@pytest.mark.req("IBM-26")
def test_a_resource_has_one_session_however_often_it_is_worked_in(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("current") as again:
            assert again is connection
            assert again.exec_driver_sql("select balance from account").scalar_one() == START - 10
        transfer(tx)
    assert bank.balances() == {"current": START - 20, "mortgage": START + 10}


def test_a_key_is_used_once(bank: Bank) -> None:
    with pytest.raises(Stop), bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        transfer(tx)
        raise Stop
    with bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        transfer(tx)
    assert bank.balances() == PAID
    with pytest.raises(AlreadyCommitted), bank.producer.coordinated("current", "mortgage", key="transfer-7"):
        pytest.fail("entered")  # pragma: no cover
    assert bank.told() == ["10 from current to mortgage"]


@pytest.mark.rule("R4")
@pytest.mark.rule("R9")
def test_a_later_owner_of_the_key_takes_over_and_the_one_before_decides_nothing(bank: Bank) -> None:
    before = Elsewhere(bank.producer.coordinated("current", "mortgage", key="transfer-7")).__enter__()
    transfer(before, "before")
    before._branches.work.drop("current")  # its locks are gone with its sessions
    before._branches.work.drop("mortgage")
    with bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        transfer(tx, "after")
    with pytest.raises(TransactionError):
        before.__exit__(None, None, None)
    assert bank.balances() == PAID
    assert bank.told() == ["after"]


@pytest.mark.rule("R2")
@pytest.mark.rule("R11")
def test_what_is_consumed_is_decided_with_it(bank: Bank) -> None:
    bank.broker.create_topic("orders", queues=1)
    bank.producer.send("orders", b"move ten")
    bank.told()
    consumer = bank.broker.consumer("payments", ["orders"], invisible=timedelta(minutes=5))
    (message,) = consumer.receive(wait=5)
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.consume(message)
        transfer(tx)
    assert (bank.balances(), bank.told()) == (PAID, ["10 from current to mortgage"])
    assert consumer.receive(wait=0) == []
    assert bank.stored.rows("SELECT * FROM claim") == []
    consumer.close()


@pytest.mark.rule("R3")
def test_a_rollback_frees_what_was_being_consumed(bank: Bank, home_url: str) -> None:
    bank.broker.create_topic("orders", queues=1)
    bank.producer.send("orders", b"move ten")
    bank.told()
    consumer = bank.broker.consumer("payments", ["orders"], invisible=timedelta(minutes=5))
    (message,) = consumer.receive(wait=5)
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    transfer(tx)
    with closing(Probe(home_url)) as probe, gate(probe, "UPDATE", "claim", when="NEW.txid IS NOT NULL") as shut:
        consuming = start(lambda: tx.consume(message))
        (writer,) = shut.wait()
        left = start(lambda: tx._branches.decide(Decision.ROLLBACK, "given up"))
        eventually(lambda: probe.blocked_by(writer) or left.done(), "the rollback waits for the writer")
        shut.open()
        consuming.result(PATIENCE)
        assert left.result(PATIENCE) is Decision.ROLLBACK
    assert bank.stored.rows("SELECT txid FROM claim") == [(None,)]
    tx.__exit__(ZeroDivisionError, ZeroDivisionError("given up"), None)
    consumer.close()


def test_a_resource_that_was_not_named_is_refused_and_nothing_is_begun(bank: Bank) -> None:
    with pytest.raises(TransactionError, match="'audit' is not part of this transaction"):
        with bank.producer.coordinated("current") as tx, tx.on("audit"):
            pytest.fail("entered")  # pragma: no cover
    assert tx.decision is Decision.ROLLBACK
    with pytest.raises(ResourceUnknown):
        bank.producer.coordinated("current", "audit")


@pytest.mark.parametrize("names", [(), ("current", "current"), (1,)])
def test_resources_are_named_once_each(bank: Bank, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        bank.producer.coordinated(*names)


def test_a_block_is_used_once(bank: Bank) -> None:
    tx = bank.producer.coordinated("current", "mortgage")
    with pytest.raises(TransactionError, match="was not entered"), tx.on("current"):
        pytest.fail("entered")  # pragma: no cover
    with tx:
        transfer(tx)
    with pytest.raises(TransactionClosed), tx:
        pytest.fail("entered")  # pragma: no cover
    with pytest.raises(TransactionClosed), tx.on("current"):
        pytest.fail("entered")  # pragma: no cover
    with pytest.raises(TransactionClosed):
        tx.send(TRANSFERS, b"late")
    assert bank.balances() == PAID


@pytest.mark.rule("R4")
def test_messages_of_an_owner_before_are_never_delivered(bank: Bank) -> None:
    before = Elsewhere(bank.producer.coordinated("current", key="transfer-7")).__enter__()
    for at in range(3):
        before.send(TRANSFERS, b"%d" % at + b"x" * 3 * 1024 * 1024)  # stored ahead of the decision
    before._branches.work.leave()
    with bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        for name in ("current", "mortgage"):
            with tx.on(name) as connection:
                pay(connection, 1)
    assert tx.decision is Decision.COMMIT
    assert bank.told() == []


@pytest.mark.req("WM-45")
def test_what_somebody_decided_over_our_head_is_no_plain_success(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decide = Enlisted.decide

    def overruled(owner: Enlisted, decision: Decision, *rest: object) -> Decision:
        standing = decide(owner, decision, *rest)  # type: ignore[arg-type]
        with bank.engines["mortgage"].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for gid in connection.exec_driver_sql(
                "select gid from pg_prepared_xacts where database = current_database()"
            ).scalars():
                connection.exec_driver_sql(f"rollback prepared '{gid}'")
        return standing

    monkeypatch.setattr(Enlisted, "decide", overruled)
    with pytest.raises(HeuristicRollback, match="'mortgage'"), bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
    assert tx.decision is Decision.COMMIT
    assert bank.balances() == {"current": START - 10, "mortgage": START}
    assert tx.txid is not None
    assert bank.states(tx.txid)["mortgage"] is BranchState.HEURISTIC_ROLLED_BACK
    assert "decided otherwise" in caplog.text


def test_a_listener_that_fails_changes_nothing(bank: Bank) -> None:
    heard: list[Decision] = []

    def fails(_: Decision) -> None:
        raise Stop

    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.when_decided(fails)
        tx.when_decided(heard.append)
        transfer(tx)
    assert (bank.balances(), heard) == (PAID, [Decision.COMMIT])


def test_a_lone_resource_that_only_read_is_committed_like_one_that_wrote(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank.broker.kernel.notes, "add", lambda _: None)  # as if its owner had died
    with bank.producer.coordinated("current") as tx:
        with tx.on("current") as connection:
            connection.exec_driver_sql("select balance from account").scalar_one()
        tx.send(TRANSFERS, b"told")
    assert tx.txid is not None
    bank.recover()
    assert bank.states(tx.txid) == {"current": BranchState.COMMITTED}


def test_a_beginning_that_is_interrupted_is_over(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = bank.broker.kernel.running.begin

    def interrupted(worker: object, doubt: Doubt) -> None:
        begin(worker, doubt)
        raise KeyboardInterrupt

    monkeypatch.setattr(bank.broker.kernel.running, "begin", interrupted)
    tx = bank.producer.coordinated("current", "mortgage", key="transfer-7")
    with pytest.raises(KeyboardInterrupt), tx:
        pytest.fail("entered")  # pragma: no cover
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.ROLLED_BACK}
    assert not bank.broker.kernel.running._since


@pytest.mark.req("WM-47")
def test_a_branch_that_held_nothing_is_rolled_back_with_the_one_that_did(bank: Bank) -> None:
    with bank.engines["current"].begin() as connection:
        connection.exec_driver_sql("alter table account add unique (balance) deferrable initially deferred")
        connection.exec_driver_sql(f"insert into account values (2, {START + 10})")
    with pytest.raises(IntegrityViolated), bank.producer.coordinated("current", "mortgage") as tx:
        with tx.on("current") as connection:
            pay(connection, 10)
    assert tx.txid is not None
    assert bank.states(tx.txid)["mortgage"] is BranchState.ROLLED_BACK
    bank.recover()
    assert bank.states(tx.txid) == {"current": BranchState.ROLLED_BACK, "mortgage": BranchState.ROLLED_BACK}


@pytest.mark.rule("R12")
@pytest.mark.parametrize("key", [None, "transfer-7"])
def test_a_commit_in_one_phase_that_failed_leaves_no_branch_prepared(bank: Bank, key: str | None) -> None:
    with bank.engines["current"].begin() as connection:
        connection.exec_driver_sql("alter table account add unique (balance) deferrable initially deferred")
        connection.exec_driver_sql(f"insert into account values (2, {START + 10})")
    with pytest.raises(IntegrityViolated), bank.producer.coordinated("current", key=key) as tx:
        with tx.on("current") as connection:
            pay(connection, 10)
    assert tx.txid is not None
    assert bank.states(tx.txid) == {"current": BranchState.ROLLED_BACK}
    trace = bank.broker.kernel.store.overview.trace(tx.txid)
    assert trace is not None
    told = {step.what: step.why for step in steps_of(trace)}
    assert "branch 1 voted" not in told
    assert told["local work did not commit"] == "no evidence row; the abort marker is in place"
    assert undo_of(trace, "") == []


@pytest.mark.req("IBM-42")
@pytest.mark.parametrize("key", [None, "transfer-7"])
@pytest.mark.parametrize("reads", [False, True])
def test_a_branch_in_which_nothing_was_done_is_told_from_one_that_was_committed(
    bank: Bank, key: str | None, reads: bool
) -> None:
    with bank.producer.coordinated("current", "mortgage", key=key) as tx:
        if reads:
            with tx.on("current") as connection:
                connection.exec_driver_sql("select balance from account").scalar_one()
        with tx.on("mortgage") as connection:
            pay(connection, 10)
        tx.send(TRANSFERS, b"told")
    assert tx.txid is not None
    bank.states(tx.txid)
    trace = bank.broker.kernel.store.overview.trace(tx.txid)
    assert trace is not None
    told = [step.what for step in steps_of(trace) if step.lane == "current"]
    assert told == ["branch 1 named", "branch 1 left: nothing to commit"]
    assert "branch 2 committed" in {step.what for step in steps_of(trace)}


@pytest.mark.rule("R12")
def test_a_ballot_and_a_last_resource_are_decided_together(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.ballot("release", "anna")
        tx.vote("release", "anna", yes=True)
        with tx.on("current") as connection:
            pay(connection, -10)
    assert bank.balances() == {"current": START - 10, "mortgage": START}
    assert tx.txid is not None
    assert bank.states(tx.txid) == {"current": BranchState.COMMITTED, "mortgage": BranchState.COMMITTED}


def test_work_on_the_drivers_own_connection_is_decided_like_any(bank: Bank) -> None:
    change = "update account set balance = balance + %s where id = 1"
    with bank.producer.coordinated("current", "mortgage") as tx:
        with tx.on("current", driver=True) as connection:
            connection.execute(change, (-10,))
        with tx.on("mortgage") as connection:
            pay(connection, 10)
        with tx.on("current", driver=True) as again:
            assert again.execute("select balance from account where id = 1").fetchone() == (START - 10,)
        with pytest.raises(TransactionError, match="driver=True"), tx.on("current"):
            pytest.fail("entered")  # pragma: no cover
        assert bank.balances() == UNTOUCHED
    assert bank.balances() == PAID
