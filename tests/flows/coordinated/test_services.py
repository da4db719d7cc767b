"""A service may be killed at any time: the outcome reaches it when it is back."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.coordinated.bank import Bank, pay
from tests.resources.callables import service
from txsaga import Callables, HttpService
from txsaga.errors import NotCarried, Unfinished
from txsaga.flows.branch import BranchState

ROOT = Path(__file__).parents[3]


class Program:
    """A service as a program, on one port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", service.__name__, str(self.folder), str(self.port), service.SECRET]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"listens\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def states(self) -> list[str]:
        return [path.suffix for path in self.folder.iterdir()]


@pytest.fixture
def till(bank: Bank, tmp_path: Path) -> Iterator[Program]:
    """Give a service that takes part in the bank's transactions."""
    program = Program(tmp_path / "till")
    at = f"http://127.0.0.1:{program.port}"
    till = HttpService(try_=f"{at}/try", confirm=f"{at}/confirm", cancel=f"{at}/cancel", secret=service.SECRET)
    bank.broker.enlist("till", till)
    yield program
    program.kill()


def test_a_service_and_a_row_are_committed_together(bank: Bank, till: Program) -> None:
    with bank.producer.coordinated("current", "till") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("till") as take:
            take(item=7)
        assert till.states == [".reserved"]
    assert till.states == [".taken"]
    assert bank.balances()["current"] == 90


def test_a_service_that_was_killed_behind_its_yes_is_told_when_it_is_back(bank: Bank, till: Program) -> None:
    with pytest.raises(Unfinished, match="till"), bank.producer.coordinated("current", "till") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("till") as take:
            take(item=7)
        till.kill()
    assert tx.txid is not None
    bank.recover()
    assert bank.states(tx.txid) == {"current": BranchState.COMMITTED, "till": BranchState.PREPARED}
    till.start()
    bank.recover()
    assert till.states == [".taken"]
    assert bank.states(tx.txid)["till"] is BranchState.COMMITTED


def test_a_service_that_was_killed_before_a_rollback_gives_back_when_it_is_back(bank: Bank, till: Program) -> None:
    with pytest.raises(ValueError), bank.producer.coordinated("current", "till") as tx:
        with tx.on("till") as take:
            take(item=7)
        till.kill()
        raise ValueError("no")
    till.start()
    bank.recover()
    assert till.states == [".cancelled"]
    assert tx.txid is not None
    assert bank.states(tx.txid)["till"] is BranchState.ROLLED_BACK


@pytest.mark.parametrize("at", ["block", "vote"])
def test_who_was_not_told_of_a_rollback_is_named(bank: Bank, caplog: pytest.LogCaptureFixture, at: str) -> None:
    def refuse(_: str, **__: object) -> None:
        raise ConnectionError("the till is down")

    bank.broker.enlist("till", Callables(try_=lambda _, **__: "taken", confirm=refuse, cancel=refuse))
    with pytest.raises((ValueError, NotCarried)) as left, bank.producer.coordinated("current", "till") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("till") as take:
            take(item=7)
        if at == "block":
            raise ValueError("no")
        tx.ballot("release", "anna")
    (note,) = left.value.__notes__
    assert note.startswith("resource 'till' could not be rolled back: ")
    assert "the till is down" in note
    assert note.endswith("; recovery rolls it back")
    warned = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warned == [f"transaction {tx.txid}: {note}"]
