"""Two owners of one key whose words come into one batch: the earlier one hears that it was superseded."""

import threading
import time

import pytest
from sqlalchemy import text

from tests.flows.coordinated.bank import Bank
from txsaga.errors import Superseded

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R4")]


class GivenUp(Exception):
    """What the later owner's own code raises."""


class Transfer:
    """A block with a key, in a thread of its own, that ends when it is told to."""

    def __init__(self, bank: Bank, account: int, *, gives_up: bool = False) -> None:
        self._bank, self._account, self._gives_up = bank, account, gives_up
        self.entered, self.end = threading.Event(), threading.Event()
        self.left: object = "normally"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.entered.wait(20)

    def _run(self) -> None:
        try:
            with self._bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
                for name, change in (("current", -10), ("mortgage", 10)):
                    with tx.on(name) as connection:
                        work = text("insert into account values (:account, :change)")
                        connection.execute(work, {"account": self._account, "change": change})
                self.entered.set()
                assert self.end.wait(20)
                if self._gives_up:
                    raise GivenUp
        except Exception as error:  # noqa: BLE001  # looked at by the test
            self.left = error

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(30)
        assert not self._thread.is_alive()


def booked(bank: Bank) -> list[list[int]]:
    """Return whose accounts everybody sees in each database."""
    found = []
    for engine in bank.engines.values():
        with engine.connect() as connection:
            found.append(list(connection.execute(text("select id from account where id > 1")).scalars()))
    return found


@pytest.mark.parametrize("gives_up", [False, True])
def test_the_earlier_owner_commits_nothing_beside_the_later(bank: Bank, gives_up: bool) -> None:
    earlier, batcher = Transfer(bank, 2), bank.broker.kernel.requests
    later = Transfer(bank, 3, gives_up=gives_up)
    with batcher._turn:  # as while another batch is under way
        earlier.end.set()
        later.end.set()
        until = time.monotonic() + 10
        while len(batcher._waiting) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(batcher._waiting) == 2
    earlier.join()
    later.join()
    assert isinstance(earlier.left, Superseded)
    assert isinstance(later.left, GivenUp) if gives_up else later.left == "normally"
    assert booked(bank) == ([[], []] if gives_up else [[3], [3]])
    assert bank.prepared() == []
