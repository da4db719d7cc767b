"""Processes beside a shop: each with a name, a kernel and checkers of its own, all on one store."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Engine

from tests.scene.fake_store import broker_on
from tests.scene.shop import Answer, Shop, says
from txsaga import COMMIT
from txsaga.checkback.answering import AnswerRole
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack
from txsaga.core.announcer import Observer
from txsaga.inspect.overview import Checks
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

QUICK = CheckProfile(interval=timedelta(0))
PATIENCE = 10.0


class Member:
    """One process: what runs in its background is done by hand, step by step."""

    def __init__(self, shop: Shop, *observers: Observer, threads: int = 4, **resources: Engine) -> None:
        self.broker = broker_on(shop.store, *observers, **resources)
        self.kernel = self.broker.kernel
        self.name = self.kernel.member
        self._answering = AnswerRole(self.kernel, threads)

    def producer(self, group: str = "shop", checker: Answer | None = None) -> Producer:
        """Open a producer of half messages."""
        return self.broker.producer(group, checker=checker or says(COMMIT))

    def beat(self) -> None:
        """Show that it is alive."""
        Heartbeat(self.kernel).run_once()

    def lead(self, profile: CheckProfile = QUICK) -> int:
        """Run one round of check-back."""
        return CheckBack(self.kernel, profile).run_once()

    def take_up(self) -> int:
        """Take up what it is asked, and take away what is answered by now."""
        return self._answering.run_once()

    def answer(self) -> None:
        """Answer all that it is asked."""
        while self._answering.run_once():
            pass


def closed(member: Member, tx: Transaction, till: str | None = None) -> int:
    """Close a transaction, before work in a resource or any other, as a process that dies then; return its number."""
    if till is None:
        tx.prepare()
    else:
        tx._close(member.kernel.resource(till)[0].id)
    assert tx.txid is not None
    return tx.txid


def age(shop: Shop, seconds: float = 60.0) -> None:
    """Let time pass so that the next round finds all that lies there now."""
    shop.later(seconds)
    shop.deliver()  # the sweep goes by ticks
    shop.later(seconds)


def cover(shop: Shop) -> None:
    """Let one second pass, and a tick cover all that lies there now: the sweep looks no further."""
    shop.later(1)
    shop.deliver()


def counted(shop: Shop, txid: int) -> int:
    """Return how often a transaction was asked about."""
    return checks(shop, txid).asked


def checks(shop: Shop, txid: int) -> Checks:
    """Return how a transaction stands on the list of doubts."""
    found = shop.store.overview.checks(txid)
    assert found is not None
    return found


def remarks(shop: Shop, txid: int) -> list[tuple[str, str]]:
    """Return what came of the checks of a transaction."""
    return [(each.answer, each.why) for each in shop.store.overview.remarks(txid)]


def until(happened: Callable[[], object]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
