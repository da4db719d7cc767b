"""A run whose host is silent keeps its transaction for the total time, one that lives keeps it for as long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from tests.scene.members import Member, age, checks, closed, remarks
from tests.scene.shop import Shop, order, says
from txsaga import UNKNOWN
from txsaga.broker import Broker
from txsaga.checkback.profile import Exhausted
from txsaga.checkback.runs import RunState
from txsaga.core.decision import Decision
from txsaga.errors import StoreUnavailable
from txsaga.messages.transaction import Transaction

pytestmark = pytest.mark.rule("R5")

HOUR = 3600.0
MORE_THAN_THE_LIMIT = 1.1 * HOUR
LESS_THAN_THE_LIMIT = 0.6 * HOUR
Answers = Callable[[str], RunState]


class Host:
    """A host of flows that says what a test wants."""

    def __init__(self, answers: Answers) -> None:
        self.state = answers


def unreachable(_: str) -> RunState:
    return RunState.UNREACHABLE


def alive(_: str) -> RunState:
    return RunState.ALIVE


def broken(_: str) -> RunState:
    raise ConnectionError("no route to host")


def away(_: str) -> RunState:
    raise StoreUnavailable("the host of runs does not answer")


def no_host(_: Broker) -> None:
    """Know of none."""


SILENT = [
    pytest.param(lambda broker: broker.ask_runs(Host(unreachable)), id="unreachable"),
    pytest.param(lambda broker: broker.ask_runs(Host(broken)), id="broken"),
    pytest.param(lambda broker: broker.ask_runs(Host(away)), id="away"),
    pytest.param(no_host, id="unknown"),
]


@pytest.fixture
def till(tmp_path: Path) -> Engine:
    """Give a database of local work."""
    return create_engine(f"sqlite:///{tmp_path / 'till.db'}", poolclass=NullPool)


def entered(member: Member, on_exhausted: Exhausted = Exhausted.PARK) -> Transaction:
    """Open a transaction of a flow, in a group that gives up after an hour."""
    producer = member.producer(checker=says(UNKNOWN))
    member.broker.set_checks("shop", total_limit=timedelta(seconds=HOUR), on_exhausted=on_exhausted)
    tx = producer.transaction(key="order-42", run="flow-1").__enter__()
    tx.send(order())
    return tx


def left(member: Member, on_exhausted: Exhausted = Exhausted.PARK, till: str | None = None) -> int:
    """Leave a closed transaction of a flow as a process that died."""
    tx = entered(member, on_exhausted)
    return closed(member, tx, till)


@pytest.mark.hole("H6")
@pytest.mark.parametrize("silence", SILENT)
@pytest.mark.parametrize(("on_exhausted", "state"), [(Exhausted.PARK, "parked"), (Exhausted.ROLL_BACK, "rolled_back")])
def test_a_flow_whose_host_stays_silent_is_given_up_at_its_total_limit(
    any_shop: Shop, silence: Callable[[Broker], None], on_exhausted: Exhausted, state: str
) -> None:
    member = Member(any_shop)
    silence(member.broker)
    txid = left(member, on_exhausted)
    age(any_shop)
    any_shop.later(LESS_THAN_THE_LIMIT)
    member.lead()
    assert (any_shop.state(txid), checks(any_shop, txid).asked) == ("sealed", 0)
    ((answer, why),) = remarks(any_shop, txid)
    assert (answer, "the state of its run is unknown" in why) == ("NO_ANSWER", True)
    any_shop.later(LESS_THAN_THE_LIMIT)
    member.lead()
    assert any_shop.state(txid) == state
    given_up = any_shop.store.overview.history(txid)[-1]
    assert given_up.why == f"not decided within 1:00:00: {why}"
    assert any_shop.bodies() == []


def test_what_a_silent_run_left_with_evidence_is_parked_and_never_fenced(any_shop: Shop, till: Engine) -> None:
    member = Member(any_shop, till=till)
    member.broker.ask_runs(Host(unreachable))
    txid = left(member, Exhausted.ROLL_BACK, "till")
    age(any_shop)
    any_shop.later(MORE_THAN_THE_LIMIT)
    member.lead()
    assert any_shop.state(txid) == "parked"
    _, evidence = member.kernel.resource("till")
    assert evidence.read(any_shop.transaction(txid).id) is None


@pytest.mark.parametrize("on_exhausted", list(Exhausted))
def test_a_flow_that_lives_is_left_alone_for_however_long_and_a_moment_of_silence_ends_nothing(
    any_shop: Shop, on_exhausted: Exhausted
) -> None:
    """An approval that takes a week, and a host that is started anew meanwhile."""
    member, host = Member(any_shop), Host(alive)
    member.broker.ask_runs(host)
    txid = left(member, on_exhausted)
    age(any_shop)
    for _ in range(3):
        any_shop.later(MORE_THAN_THE_LIMIT)
        member.lead()
    host.state = unreachable
    any_shop.later(LESS_THAN_THE_LIMIT)
    member.lead()
    assert (any_shop.state(txid), checks(any_shop, txid).asked) == ("sealed", 0)
    any_shop.later(LESS_THAN_THE_LIMIT)
    member.lead()
    assert any_shop.state(txid) in ("parked", "rolled_back")


@pytest.mark.parametrize("on_exhausted", list(Exhausted))
def test_one_engine_that_was_told_of_the_host_is_enough_for_a_flow_that_lives(
    any_shop: Shop, on_exhausted: Exhausted
) -> None:
    told, other = Member(any_shop), Member(any_shop)
    told.broker.ask_runs(Host(alive))
    txid = left(told, on_exhausted)
    age(any_shop)
    for _ in range(3):
        for member in (told, other):
            any_shop.later(LESS_THAN_THE_LIMIT)
            member.lead()
    assert any_shop.state(txid) == "sealed"


@pytest.mark.parametrize("on_exhausted", list(Exhausted))
def test_the_time_of_a_silent_host_counts_from_the_last_word_of_the_flow_itself(
    any_shop: Shop, on_exhausted: Exhausted
) -> None:
    member = Member(any_shop)
    member.broker.ask_runs(Host(unreachable))
    tx = entered(member, on_exhausted)
    life = tx.join_life()
    any_shop.later(MORE_THAN_THE_LIMIT)
    with any_shop.store.ledgers.open() as ledger:
        ledger.touch(life.txid)
    any_shop.later(LESS_THAN_THE_LIMIT)
    member.lead()
    assert any_shop.state(life.txid) == "active"
    any_shop.later(LESS_THAN_THE_LIMIT)
    member.lead()
    assert any_shop.state(life.txid) in ("parked", "rolled_back")


def test_an_open_flow_that_was_parked_for_its_silent_host_is_still_its_owners_to_end(any_shop: Shop) -> None:
    member = Member(any_shop)
    member.broker.ask_runs(Host(unreachable))
    tx = entered(member)
    tx.join_life()
    any_shop.later(MORE_THAN_THE_LIMIT)
    member.lead()
    assert tx.txid is not None and any_shop.state(tx.txid) == "parked"
    tx.__exit__(None, None, None)
    assert (tx.decision, any_shop.bodies()) == (Decision.COMMIT, ["a chair"])
