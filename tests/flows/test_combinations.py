"""What the three blocks offer of the one model, together or one in another, and why the rest is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from sqlalchemy import text

import txsaga
from tests.flows.saga.agency import BOOK, CANCEL, TRIPS, Agency, Stop, book, call_off, cancel, done
from tests.flows.saga.conftest import agency as agency  # a fixture
from tests.scene.elsewhere import Elsewhere
from txsaga.errors import AlreadyCommitted, ConfigError, Superseded, TxSagaError
from txsaga.flows.flow import Flow
from txsaga.messages.producer import Producer

pytestmark = [pytest.mark.postgres, pytest.mark.core]

KEY = "trip-7"


@pytest.fixture
def producer(agency: Agency) -> Producer:
    """Give the producer of the group whose sagas the agency opens."""
    return agency.broker.producer("travel", checker=lambda _: txsaga.UNKNOWN)


def as_input(what: str) -> Mapping[str, str]:
    return {"what": what}


def hold_and_commit(flow: Flow) -> None:
    """Do work of every hold in one database."""
    with flow.step("held", on="bank") as connection:
        connection.execute(text(BOOK), as_input("held"))
    with flow.step("noted", on="bank", hold="journal") as journal:
        journal.execute(BOOK, as_input("noted"), rows=1)
    flow.call("paid", book, on="bank", compensate=cancel, input=as_input("paid"))
    with flow.step("logged", lane="bank", compensate=CANCEL, input=as_input("logged")) as connection:
        connection.execute(text(BOOK), as_input("logged"))
    flow.lane("bank").commit()


@pytest.mark.parametrize("commits", [True, False])
def test_a_flow_is_a_saga_with_held_steps_and_lanes(agency: Agency, producer: Producer, commits: bool) -> None:
    with producer.begin_flow("bank", lanes=["bank"], key=KEY) as flow:
        hold_and_commit(flow)
        assert agency.lines() == ["paid", "logged"]
        flow.end() if commits else flow.roll_back()
    visible = ["held", "logged", "noted", "paid"] if commits else ["logged", "paid", "undo logged", "undo paid"]
    assert sorted(agency.lines()) == visible


HELD = "keeps work from others until the decision"
EARLY = "lets work commit before the rest"


@pytest.mark.parametrize(
    ("spelling", "why"),
    [
        (lambda saga: saga.step(book, on="bank", hold="prepared", input=as_input("a")), HELD),
        (lambda saga: saga.step(BOOK, on="bank", hold="journal", input=as_input("a")), HELD),
        (lambda saga: saga.parallel().step(book, on="bank", hold="prepared", input=as_input("a")).result(), HELD),
        (lambda saga: saga.step(BOOK, lane="bank", input=as_input("a")), EARLY),
        (lambda saga: saga.on("bank"), HELD),
        (lambda saga: saga.journal("bank"), HELD),
        (lambda saga: saga.lane("bank"), EARLY),
    ],
)
def test_a_saga_names_what_it_does_not_hold(agency: Agency, spelling: Callable[..., object], why: str) -> None:
    with pytest.raises((ConfigError, AttributeError), match=f"{why}.*; use a "), agency.saga() as saga:
        spelling(saga)
    assert agency.lines() == []


@pytest.mark.parametrize("name", ["step", "call", "parallel", "reserve", "no_return"])
def test_a_coordinated_block_names_what_others_would_see(producer: Producer, name: str) -> None:
    why = rf"{name}\(\) is for work that commits at once .* nothing is visible before the decision; use a flow"
    with pytest.raises(AttributeError, match=why), producer.coordinated("bank") as tx:
        getattr(tx, name)
    with pytest.raises(AttributeError, match="'Coordinated' object has no attribute 'stp'"):
        _ = producer.coordinated("bank").stp  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["on", "journal", "parallel", "reserve", "no_return"])
def test_a_flow_names_what_one_process_would_have_to_keep(producer: Producer, name: str) -> None:
    with producer.begin_flow("bank", key=KEY) as flow, pytest.raises(AttributeError, match=rf"^{name}\(\) .*process"):
        getattr(flow, name)
    flow.roll_back()


def test_an_option_that_no_step_has_is_named(agency: Agency) -> None:
    with pytest.raises(TypeError, match="a step takes no retry="), agency.saga() as saga:
        saga.step(book, on="bank", input=as_input("a"), retry=3)  # type: ignore[call-arg]


def test_a_lane_of_a_coordinated_block_commits_before_it(agency: Agency, producer: Producer) -> None:
    with pytest.raises(Stop), producer.coordinated("flights") as tx:
        with tx.lane("bank") as connection:
            connection.execute(text(BOOK), as_input("logged"))
        tx.lane("bank").commit()
        tx.journal("flights").execute(BOOK, as_input("noted"))
        raise Stop
    assert (agency.lines(), agency.lines("flights")) == (["logged"], [])


def test_a_saga_in_a_step_of_a_flow_is_a_transaction_of_its_own(agency: Agency, producer: Producer) -> None:
    with producer.begin_flow("bank", key=KEY) as flow:
        with flow.step("held", on="bank") as connection:
            connection.execute(text(BOOK), as_input("held"))
            with agency.saga() as saga:
                agency.book(saga, "a")
        flow.roll_back()
    assert agency.lines() == ["a"]


def test_a_coordinated_block_in_a_step_of_a_saga_is_undone_by_its_compensation(
    agency: Agency, producer: Producer
) -> None:
    def everywhere(what: str) -> None:
        with producer.coordinated("bank", "flights") as tx:
            for name in ("bank", "flights"):
                tx.journal(name).execute(BOOK, as_input(what))
            tx.send(TRIPS, what.encode())

    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(everywhere, compensate=call_off, input=as_input("a"))
        raise Stop
    assert agency.lines() == agency.lines("flights") == ["a"]
    assert (done, agency.told()) == (["undo a"], ["a"])


@pytest.mark.rule("R6")
def test_a_coordinated_block_with_the_key_of_a_saga_undoes_its_steps_first(agency: Agency, producer: Producer) -> None:
    with pytest.raises(Superseded), Elsewhere(agency.saga(KEY)) as saga:
        agency.book(saga, "a")
        with producer.coordinated("bank", key=KEY) as tx, tx.on("bank") as connection:
            assert tx.txid != saga.txid
            connection.execute(text(BOOK), as_input("b"))
    assert agency.lines() == ["a", "undo a", "b"]
    assert (agency.states(saga.txid), agency.open_sagas()) == (["compensated"], 0)
    with pytest.raises(AlreadyCommitted):
        agency.saga(KEY).__enter__()


@pytest.mark.rule("R6")
def test_a_transaction_can_t_take_the_key_of_a_saga_that_is_not_over(agency: Agency, producer: Producer) -> None:
    with pytest.raises(Stop), Elsewhere(agency.saga(KEY)) as saga:
        agency.book(saga, "a")
        with pytest.raises(ConfigError, match="belongs to saga"), producer.transaction(key=KEY):
            pass
        raise Stop
    assert agency.lines() == ["a", "undo a"]
    with producer.transaction(key=KEY) as tx:
        tx.send(TRIPS, b"b")
    assert agency.told() == ["b"]


def test_a_saga_with_the_key_of_a_coordinated_block_takes_its_work_over(agency: Agency, producer: Producer) -> None:
    with pytest.raises(Superseded), Elsewhere(producer.coordinated("bank", "flights", key=KEY)) as tx:
        with tx.on("bank") as connection:
            connection.execute(text(BOOK), as_input("b"))
        with agency.saga(KEY) as saga:
            agency.book(saga, "a")
    assert agency.lines() == ["a"]


@pytest.mark.parametrize("opens", [lambda it, _: it.saga(KEY), lambda _, producer: producer.coordinated("b", key=KEY)])
def test_the_key_of_a_flow_is_its_own(
    agency: Agency, producer: Producer, opens: Callable[[Agency, Producer], txsaga.Saga]
) -> None:
    agency.broker.register("b", agency.engines["bank"])
    flow = producer.begin_flow("bank", key=KEY)
    with pytest.raises(ConfigError, match=f"belongs to flow {flow.txid}; flows, .* need different keys"):
        opens(agency, producer).__enter__()
    flow.end()
    with pytest.raises(TxSagaError, match="committed"):
        opens(agency, producer).__enter__()
