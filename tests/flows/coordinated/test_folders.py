"""Files and rows are there together, or neither."""

from pathlib import Path

import pytest

import txsaga
from tests.flows.coordinated.bank import Bank, pay
from txsaga import Folder
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError
from txsaga.flows.branch import BranchState


@pytest.fixture
def reports(bank: Bank, tmp_path: Path) -> Path:
    """Give a folder that takes part in the bank's transactions."""
    root = tmp_path / "reports"
    root.mkdir()
    bank.broker.enlist("reports", Folder(root))
    return root


@pytest.mark.req("IBM-40")
def test_a_file_and_a_row_are_committed_together(bank: Bank, reports: Path) -> None:
    with bank.producer.coordinated("current", "reports") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("reports") as folder:
            folder.write("7.txt", b"ten were paid")
        assert not (reports / "7.txt").exists()
        tx.send("transfers", b"7")
    assert (reports / "7.txt").read_bytes() == b"ten were paid"
    assert bank.balances()["current"] == 90
    assert bank.told() == ["7"]
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.COMMITTED}


def test_a_folder_alone_votes_too(bank: Bank, reports: Path) -> None:
    with bank.producer.coordinated("reports") as tx, tx.on("reports") as folder:
        folder.write("7.txt", b"alone")
    assert (reports / "7.txt").read_bytes() == b"alone"


def test_an_error_leaves_neither(bank: Bank, reports: Path) -> None:
    with pytest.raises(ValueError), bank.producer.coordinated("current", "reports") as tx:
        with tx.on("reports") as folder:
            folder.write("7.txt", b"ten were paid")
        with tx.on("current") as connection:
            pay(connection, -10)
        raise ValueError("no")
    assert [path.name for path in reports.iterdir()] == [".txsaga"]
    assert bank.balances()["current"] == 100


@pytest.mark.rule("R9")
@pytest.mark.parametrize("decided", [True, False])
def test_recovery_ends_what_a_dead_owner_left_in_a_folder(bank: Bank, reports: Path, decided: bool) -> None:
    tx = bank.producer.coordinated("current", "reports").__enter__()
    with tx.on("current") as connection:
        pay(connection, -10)
    with tx.on("reports") as folder:
        folder.write("7.txt", b"ten were paid")
    owner = tx._branches
    votes = owner.work.named(owner.work.prepare())
    if decided:
        owner.decide(Decision.COMMIT, "the block ended", votes=votes)
    owner.leave()
    assert not (reports / "7.txt").exists()
    bank.recover()
    assert (reports / "7.txt").exists() is decided
    assert bank.balances()["current"] == (90 if decided else 100)
    assert tx.txid is not None
    states = {BranchState.COMMITTED if decided else BranchState.ROLLED_BACK}
    assert set(bank.states(tx.txid).values()) == states


@pytest.mark.req("IBM-48")
def test_only_what_is_declared_enlists(bank: Bank, reports: Path) -> None:
    with pytest.raises(ConfigError, match="give a Folder"):
        bank.broker.enlist("letters", str(reports))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="registered already"):
        bank.broker.enlist("reports", Folder(reports))
    with pytest.raises(ConfigError, match="registered already"):
        bank.broker.enlist("current", Folder(reports))
    with pytest.raises(ConfigError, match="registered already"):
        bank.broker.register("reports", bank.engines["current"])


@pytest.mark.req("IBM-13", "IBM-14")
def test_a_folder_has_no_auxiliary_lane(bank: Bank, reports: Path) -> None:
    with bank.producer.coordinated("reports") as tx, pytest.raises(ConfigError, match="auxiliary"):
        tx.lane("reports")


def test_participants_may_be_given_with_the_store(home_url: str, bank: Bank, reports: Path) -> None:
    given = {"reports": Folder(reports)}
    with txsaga.connect(home_url, participants=given, roles=False, answering=False, env={}) as broker:
        _, participant = broker.kernel.participant("reports")
        assert participant.name == "reports"
    with pytest.raises(ConfigError, match="lower case"):
        txsaga.connect(home_url, participants={"Reports": Folder(reports)}, env={})


@pytest.mark.req("WM-45")
@pytest.mark.parametrize("by", ["owner", "recovery"])
def test_what_found_no_place_is_told_with_the_place_to_look_at(bank: Bank, reports: Path, by: str) -> None:
    tx = bank.producer.coordinated("reports").__enter__()
    with tx.on("reports") as folder:
        folder.write("7.txt", b"ten were paid")
    owner = tx._branches
    owner.decide(Decision.COMMIT, "the block ended", votes=owner.work.named(owner.work.prepare()))
    (reports / "7.txt").write_bytes(b"a stranger's")
    told = owner.finish(Decision.COMMIT).against if by == "owner" else []
    owner.leave()
    bank.broker.kernel.notes.flush()
    bank.recover()
    (branch,) = bank.broker.kernel.store.work.branches(tx.txid or 0)
    assert branch.state is BranchState.HEURISTIC_HAZARD
    staging = Path(branch.why.partition("; see ")[2])
    assert staging.parent.parent == reports / ".txsaga"
    assert {path.name for path in staging.iterdir()} == {"1", "manifest.json"}
    assert all(str(staging) in str(each) for each in told)
    assert len(told) == (by == "owner")
