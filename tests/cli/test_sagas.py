"""Commands about sagas: what is left of them, what would happen, and what a person does."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.flows.saga.agency import BOOK, CANCEL, LONG_AGO, TRIPS, Agency, Stop, call, done, mail
from tests.flows.saga.conftest import agency as agency  # a fixture
from txsaga import Undo, compensation
from txsaga.cli.options import os_user
from txsaga.flows.actions import CODE
from txsaga.flows.saga import Saga
from txsaga.flows.saga_driver import SagaRecovery

pytestmark = pytest.mark.postgres


@compensation("cli-fails")
def fails(what: str) -> None:
    """Fail each time."""
    raise Stop("no money")


@pytest.fixture
def desk(agency: Agency, bare: Cli, home_url: str) -> Cli:
    """Give a way to call commands on the agency's store."""

    def call(*words: str, **env: str) -> object:
        return bare(*words, **{"TXSAGA_URL": home_url, **env})

    return call  # type: ignore[return-value]


def stalled(agency: Agency) -> int:
    """Leave a saga that waits for a person."""
    with pytest.raises(Stop), agency.saga("trip-7") as saga:
        saga.step(BOOK, on="bank", compensate=CANCEL, input={"what": "a"}, name="debit")
        saga.step(call, compensate=Undo(fails, retries=0), input={"what": "b"}, name="hotel")
        raise Stop
    assert saga.txid is not None
    return saga.txid


def left_open(agency: Agency) -> Saga:
    """Leave a saga that is not decided."""
    saga = agency.saga()
    saga.__enter__()
    saga.step(BOOK, on="bank", compensate=CANCEL, input={"what": "a"}, name="debit")
    saga.step("update line set what = what", on="flights", name="look")
    saga.step(call, compensate=fails, input={"what": "b"}, name="hotel")
    return saga


def test_what_stands_still_is_listed_and_shown(agency: Agency, desk: Cli) -> None:
    txid = stalled(agency)
    (listed,) = desk("saga", "list", "--stalled", "--json").documents
    assert (listed["txid"], listed["key"], listed["decision"]) == (txid, "trip-7", "ROLLBACK")
    assert (listed["steps"], listed["left"], listed["stalled"]) == (2, 2, True)
    shown = desk("saga", "show", str(txid), "--json").document
    assert [(step["name"], step["state"]) for step in shown["steps"]] == [
        ("debit", "compensating"),
        ("hotel", "compensation_failed"),
    ]
    assert shown["steps"][1]["error"] == "Stop: no money"
    said = desk("saga", "show", str(txid))
    assert (said.code, "compensation_failed" in said.out, "Stop: no money" in said.out) == (0, True, True)
    assert "trip-7" in desk("saga", "list").out


def test_a_step_is_resumed_with_a_reason(agency: Agency, desk: Cli) -> None:
    txid = stalled(agency)
    assert desk("saga", "resume", str(txid)).code == 2
    assert desk("saga", "resume", str(txid), "--reason", "there is money").out == f"saga {txid}: step 2 resumed\n"
    assert SagaRecovery(agency.broker.kernel).run_once() == 0  # it fails again
    history = desk("tx", "show", str(txid), "--json").document["history"]
    assert [(each["what"], each["who"]) for each in history][-1] == ("STEP RESUMED", os_user())


def test_a_step_is_skipped_with_a_reason(agency: Agency, desk: Cli) -> None:
    txid = stalled(agency)
    said = desk("saga", "skip", str(txid), "--step", "2", "--reason", "paid by hand", "--json")
    assert said.document == {"txid": txid, "steps": [2], "done": "skipped"}
    assert SagaRecovery(agency.broker.kernel).run_once() == 1
    assert desk("saga", "list", "--json").documents == []
    assert desk("saga", "show", str(txid), "--json").document["over"] is True


def test_mistakes_have_their_codes(agency: Agency, desk: Cli) -> None:
    txid = stalled(agency)
    assert desk("saga", "show", "999").code == 4
    assert desk("saga", "skip", str(txid), "--step", "9", "--reason", "x").code == 4
    assert desk("saga", "resume", str(txid), "--step", "1", "--reason", "x").code == 5
    assert desk("saga", "skip", str(txid), "--step", "2", "--reason", " ").code == 3
    assert desk("tx", "preview", "999").code == 4


def test_a_preview_tells_what_either_decision_would_do(agency: Agency, desk: Cli) -> None:
    saga = left_open(agency)
    saga.send_many(TRIPS, [b"one", b"two"])
    saga._owner.add(saga._outbox.take())
    commit = desk("tx", "preview", str(saga.txid), "--json").documents
    assert [(each["does"], each["where"], each["what"], each["number"]) for each in commit] == [
        ("publish", "home", f"messages to {TRIPS}", 2),
        ("keep", "bank", "step 1 debit", 1),
        ("keep", "flights", "step 2 look", 0),
        ("keep", "outside", "step 3 hotel", None),
    ]
    undo = desk("tx", "preview", str(saga.txid), "--undo", "--json").documents
    assert [(each["does"], each["where"], each["what"], each["by"]) for each in undo] == [
        ("drop", "home", f"messages to {TRIPS}", None),
        ("compensate, if it was done", "outside", "step 3 hotel", "cli-fails"),
        ("leave", "flights", "step 2 look, which has no compensation", None),
        ("compensate", "bank", "step 1 debit", CANCEL),
    ]
    assert "compensate" in desk("tx", "preview", str(saga.txid), "--undo").out
    assert [entry["by"] for entry in desk("tx", "show", str(saga.txid), "--json").document["undo"]][-1] == "cli-fails"
    saga._steps.leave()


def test_behind_a_decision_a_preview_tells_what_is_left(agency: Agency, desk: Cli) -> None:
    txid = stalled(agency)
    assert desk("tx", "preview", str(txid)).out == "nothing is left to do\n"
    undo = desk("tx", "preview", str(txid), "--undo", "--json").documents
    assert [(each["does"], each["what"]) for each in undo] == [
        ("wait for you", "step 2 hotel"),
        ("compensate", "step 1 debit"),
    ]


def test_the_timeline_tells_of_steps_and_of_their_end(agency: Agency, desk: Cli) -> None:
    txid = stalled(agency)
    told = [step["what"] for step in desk("tx", "show", str(txid), "--json").document["timeline"]["steps"]]
    assert "step 1 debit is to be undone" in told and "step 2 hotel can't be undone" in told


def test_status_counts_sagas(agency: Agency, desk: Cli) -> None:
    stalled(agency)
    assert desk("status", "--json").document["sagas"] == {"running": 0, "driving": 0, "waiting": 0, "stalled": 1}
    assert "1 stalled" in desk("status").out


def test_an_engine_loads_the_code_of_sagas_and_drives_them(
    agency: Agency, desk: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CODE, "unloaded", {})
    with monkeypatch.context() as killed, agency.saga() as saga:
        saga.no_return()
        saga.step(mail, input={"what": "a"})
        killed.setattr("txsaga.flows.saga.drive", lambda *_: None)
    agency.stored.let_pass(LONG_AGO)
    agency.stored.rows("UPDATE saga SET until = until - interval '1 hour'")
    assert done == []
    said = desk("engine", "--once", "--json", "--sagas", "tests.flows.saga.agency", "--sagas", "no.such.module")
    assert said.document["recovery"] == 1
    assert "module 'no.such.module' with code of sagas can't be loaded" in said.err
    assert done == ["mail a"]
