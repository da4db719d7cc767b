"""An application in a step is found by whoever waits for it: while it works, when it is done, when it is gone."""

from __future__ import annotations

import json

import pytest

from tests.flows.coordinated.bank import TRANSFERS
from tests.flows.flow.desks import Desks
from txsaga.errors import ConfigError, DecidedOtherwise, Superseded, TransactionError
from txsaga.flows.step import StepState, read_application

pytestmark = pytest.mark.postgres

APP = {"id": "app-1", "pid": 7}


def test_an_application_is_found_while_it_works_and_its_result_when_it_is_done(desks: Desks) -> None:
    txid = desks.begin()
    with desks.joined(txid) as waiting:
        assert waiting.attempt("books") is None
        with desks.joined(txid) as flow, flow.step("books", application=APP):
            found = waiting.attempt("books")
            assert found is not None and found.application is not None
            assert (found.number, found.state, found.alive) == (1, StepState.STARTED, True)
            assert (found.application.about, found.application.result) == (APP, None)
            flow.hand_on({"rows": 3})
        found = waiting.attempt("books")
        assert found is not None and found.application is not None and found.application.result is not None
        assert (found.state, found.alive) == (StepState.DONE, False)
        assert (found.application.name, json.loads(found.application.result)) == ("app-1", {"rows": 3})


def test_an_application_that_failed_is_not_alive_and_says_why(desks: Desks) -> None:
    txid = desks.begin()
    with desks.joined(txid) as flow:
        with pytest.raises(ValueError, match="no rows"):
            with flow.step("books", application=APP):
                raise ValueError("no rows")
        found = flow.attempt("books")
        assert found is not None and (found.state, found.alive) == (StepState.FAILED, False)
        assert "no rows" in found.why


@pytest.mark.rule("R4")
def test_an_application_whose_place_was_taken_leaves_nothing(desks: Desks) -> None:
    txid = desks.begin()
    with desks.joined(txid) as late:
        with pytest.raises(Superseded):
            with late.step("books", application=APP):
                late.send(TRANSFERS, b"late")
                late.hand_on("late")
                with desks.joined(txid) as flow, flow.step("books", application={"id": "app-2"}):
                    flow.send(TRANSFERS, b"in time")
                    flow.hand_on("in time")
        found = late.attempt("books")
        assert found is not None and found.application is not None
        assert (found.number, found.application.name, found.application.result) == (2, "app-2", '"in time"')
        desks.end(txid)
        with pytest.raises(DecidedOtherwise):
            late.attempt("books")
    assert desks.bank.told() == ["in time"]


def test_a_result_needs_an_application_and_must_be_json(desks: Desks) -> None:
    with desks.joined(desks.begin()) as flow:
        with pytest.raises(TransactionError, match="a flow hands results on in its steps"):
            flow.hand_on(1)
        with pytest.raises(TransactionError, match="step 'books' has no application"), flow.step("books"):
            flow.hand_on(1)
        with pytest.raises(ConfigError, match="must be JSON"), flow.step("books", application=APP):
            flow.hand_on(object())


@pytest.mark.parametrize("about", ["app-1", {}, {"id": ""}, {"id": 7}, {"id": "app-1", "of": b""}], ids=str)
def test_what_could_not_be_read_again_is_refused(desks: Desks, about: object) -> None:
    with desks.joined(desks.begin()) as flow:
        with pytest.raises(ConfigError, match="application"):
            flow.step("books", application=about)  # type: ignore[arg-type]
        assert flow.attempt("books") is None


def test_an_application_works_in_no_resource(desks: Desks) -> None:
    with desks.joined(desks.begin("current")) as flow, pytest.raises(TransactionError, match="without on= and lane="):
        flow.step("books", on="current", application=APP)


def test_what_a_newer_program_wrote_is_read() -> None:
    found = read_application(json.dumps({"member": "m", "about": APP, "result": None, "more": 1}))
    assert found is not None and found.name == "app-1"
