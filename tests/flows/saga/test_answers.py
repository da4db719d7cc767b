"""What a service did stays done, whatever becomes of its answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pytest

from tests.flows.saga.agency import Agency, Stop, call, call_off, done
from txsaga import Http
from txsaga.errors import AnswerLost, ServiceFailed, ServiceRefused
from txsaga.flows.step import Left
from txsaga.resources.services import HttpReply

pytestmark = [pytest.mark.postgres, pytest.mark.core]

LONG = "more than 9 bytes; answer with less"
SHOP = Http("https://shop/book")


@pytest.fixture
def heard(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    heard: list[str] = []

    def answered(method: str, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> HttpReply:
        heard.append(headers["Idempotency-Key"].rpartition(":")[2])
        return HttpReply(409 if url.endswith("no") else 200, b'{"room": ', LONG)

    monkeypatch.setattr(agency.broker.kernel, "services", answered)
    return heard


def test_a_step_whose_answer_is_cut_is_an_error_and_is_undone(agency: Agency, heard: list[str]) -> None:
    with pytest.raises(AnswerLost) as lost, agency.saga() as saga:
        saga.step(SHOP, compensate=call_off, input={"what": "room"})
    assert str(lost.value) == f"https://shop/book confirmed it with 200, but its answer is {LONG}"
    assert isinstance(lost.value, ServiceFailed)
    assert done == ["undo room"]
    assert agency.broker.kernel.store.work.steps(saga.txid or 0)[0].left is Left.UNKNOWN


def test_a_step_whose_answer_is_cut_is_not_tried_again(agency: Agency, heard: list[str]) -> None:
    with pytest.raises(AnswerLost), agency.saga() as saga:
        saga.step(SHOP, compensate=call_off, input={"what": "room"}, retries=3)
    assert (heard, done) == (["1"], ["undo room"])


def test_a_no_is_a_no_however_long_it_is(agency: Agency, heard: list[str]) -> None:
    with pytest.raises(ServiceRefused, match="answered 409"), agency.saga() as saga:
        saga.step(Http("https://shop/no"), compensate=call_off, input={"what": "room"})
    assert done == []


def test_a_service_that_is_being_restarted_is_found_by_a_retry(agency: Agency, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: Iterator[HttpReply | Exception] = iter(
        [ConnectionRefusedError("refused"), ConnectionRefusedError("refused"), HttpReply(200, b"{}", "")]
    )

    def answered(*_: object) -> HttpReply:
        reply = next(tries)
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(agency.broker.kernel, "services", answered)
    with agency.saga() as saga:
        saga.step(SHOP, compensate=call_off, input={"what": "room"}, retries=2, pause=0.001)
    assert (agency.states(saga.txid), done) == (["done"], [])


def test_a_compensation_whose_answer_is_cut_is_done(agency: Agency, heard: list[str]) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(call, compensate=SHOP, input={"what": "room"})
        raise Stop
    assert heard == ["undo"]
    assert agency.states(saga.txid) == ["compensated"]


def test_behind_the_point_of_no_return_it_is_done_once_and_told(
    agency: Agency, heard: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), agency.saga() as saga:
        saga.no_return()
        later = saga.step(SHOP, name="shop", input={"what": "room"})
    assert heard == ["1"]
    assert agency.states(saga.txid) == ["done"]
    assert later.result() is None
    assert (
        f"step 1 'shop' of transaction {saga.txid} is done, its result is not stored: {SHOP.url} confirmed it with "
        in (caplog.text)
    )


@pytest.mark.parametrize("body", [b'"a\\u0000b"', b"NaN", b'"\\ud800"', b"\0"], ids=ascii)
def test_behind_the_point_of_no_return_it_is_not_done_again_for_an_answer_that_no_store_keeps(
    agency: Agency, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    calls: list[str] = []

    def answered(method: str, url: str, sent: bytes, headers: Mapping[str, str], timeout: float) -> HttpReply:
        calls.append(url)
        return HttpReply(200, body)

    monkeypatch.setattr(agency.broker.kernel, "services", answered)
    with caplog.at_level(logging.WARNING), agency.saga() as saga:
        saga.no_return()
        later = saga.step(SHOP, name="shop", input={"what": "room"})
    assert (calls, agency.states(saga.txid), later.result()) == ([SHOP.url], ["done"], None)
    assert "is done, its result is not stored: what step 'shop' returned" in caplog.text
