"""Steps beside each other, services, messages, reservations and what is consumed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.flows.saga.agency import BOOK, CANCEL, Agency, Stop, book, call, call_off, cancel, done, mail
from txsaga import Decision, Http, Send, Undo, compensation
from txsaga.errors import (
    ConfigError,
    ReservationExpired,
    ServiceFailed,
    ServiceRefused,
    ServiceUnreachable,
    StepTimedOut,
)

pytestmark = pytest.mark.postgres


class Hotel(BaseHTTPRequestHandler):
    """A service that notes what it is asked, and answers with the status that its path names."""

    heard: list[tuple[str, str, object]]

    def do_POST(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((self.path, self.headers["Idempotency-Key"], json.loads(body)))
        status = int(self.path.rpartition("/")[2])
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b'{"room": 7}' if status == 200 else b"sorry")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hotel() -> Iterator[tuple[str, list[tuple[str, str, object]]]]:
    heard: list[tuple[str, str, object]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hotel", (Hotel,), {"heard": heard}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_service_is_a_step_and_gets_an_id_that_stays_the_same(
    agency: Agency, hotel: tuple[str, list[tuple[str, str, object]]]
) -> None:
    url, heard = hotel
    with pytest.raises(Stop), agency.saga() as saga:
        undo = Undo(do=Http(f"{url}/cancel/200"), input={"room": 7})
        assert saga.step(Http(f"{url}/book/200"), compensate=undo, input={"guest": "anna"}) == {"room": 7}
        raise Stop
    first, second = heard
    assert first == ("/book/200", f"{saga.id}:1", {"guest": "anna"})
    assert second == ("/cancel/200", f"{saga.id}:1:undo", {"room": 7})


def test_a_service_that_says_no_has_nothing_undone(
    agency: Agency, hotel: tuple[str, list[tuple[str, str, object]]]
) -> None:
    url, heard = hotel
    with pytest.raises(ServiceRefused, match="409 sorry"), agency.saga() as saga:
        saga.step(Http(f"{url}/book/409"), compensate=Http(f"{url}/cancel/200"))
    assert len(heard) == 1


def test_a_service_that_fails_may_have_done_it_and_is_undone(
    agency: Agency, hotel: tuple[str, list[tuple[str, str, object]]]
) -> None:
    url, heard = hotel
    with pytest.raises(ServiceFailed, match="500"), agency.saga() as saga:
        saga.step(Http(f"{url}/book/500"), compensate=Http(f"{url}/cancel/200"))
    assert [path for path, _, _ in heard] == ["/book/500", "/cancel/200"]


def test_a_service_that_is_not_there_was_asked_for_nothing(agency: Agency) -> None:
    with pytest.raises(ServiceUnreachable, match="can't be reached"), agency.saga() as saga:
        saga.step(Http("http://127.0.0.1:9/book"), compensate=call_off, input={"what": "a"})
    assert done == []


def test_a_message_is_a_step_that_is_published_at_once(agency: Agency) -> None:
    agency.broker.create_topic("news", queues=1)
    with pytest.raises(Stop), agency.saga() as saga:
        saga.step(Send("news", "booked"), compensate=Send("news", "called off"))
        raise Stop
    stream = agency.broker.stream("news-reader", ["news"], member="anna")
    agency.told()
    found = [message for batch in stream.batches(wait=0) for message in batch.messages()]
    stream.close()
    assert [message.text() for message in found] == ["booked", "called off"]
    assert [(message.headers or {})["txsaga-step"] for message in found] == [f"{saga.id}:1", f"{saga.id}:1:undo"]


@pytest.mark.rule("R6")
def test_steps_beside_each_other_are_undone_in_the_reverse_order_of_their_start(agency: Agency) -> None:
    first_done, second_done = threading.Event(), threading.Event()

    def slow(what: str) -> None:
        second_done.wait(30)
        call(what)
        first_done.set()

    def quick(what: str) -> None:
        call(what)
        second_done.set()

    with pytest.raises(Stop), agency.saga() as saga:
        with saga.parallel() as together:
            together.step(slow, compensate=call_off, input={"what": "a"})
            future = together.step(quick, compensate=call_off, input={"what": "b"})
        assert future.done()
        raise Stop
    assert done == ["b", "a", "undo b", "undo a"]


def test_of_steps_beside_each_other_those_under_way_are_waited_for(agency: Agency) -> None:
    failed = threading.Event()

    def slow(what: str) -> None:
        failed.wait(30)
        time.sleep(0.05)
        call(what)

    def fails() -> None:
        failed.set()
        raise Stop

    with pytest.raises(Stop), agency.saga() as saga, saga.parallel(threads=2) as together:
        together.step(slow, compensate=call_off, input={"what": "a"})
        together.step(fails, compensate=None)
        never = together.step(call, compensate=call_off, input={"what": "c"})
    assert done == ["a", "undo a"]
    assert never.exception() is not None
    assert len(agency.states(saga.txid)) == 2


def test_steps_beside_each_other_work_in_databases(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        with saga.parallel() as together:
            for what in "abc":
                together.step(book, on="bank", compensate=cancel, input={"what": what})
            together.step(BOOK, on="flights", compensate=CANCEL, input={"what": "d"})
        raise Stop
    assert sorted(agency.lines()[:3]) == ["a", "b", "c"]
    assert agency.lines()[3:] == ["undo c", "undo b", "undo a"]
    assert agency.lines("flights") == ["d", "undo d"]


def test_two_failures_beside_each_other_are_both_told(agency: Agency) -> None:
    both = threading.Barrier(2)

    def fails(word: str) -> None:
        both.wait(30)
        raise Stop(word)

    with pytest.raises(Stop, match="one") as told, agency.saga() as saga, saga.parallel() as together:
        together.step(fails, input={"word": "one"})
        together.step(fails, input={"word": "two"})
    assert told.value.__notes__ == ["another step: Stop: two"]


def test_a_step_that_takes_too_long_is_given_up_and_undone(agency: Agency) -> None:
    go_on = threading.Event()

    def slow(what: str) -> None:
        go_on.wait(30)

    with pytest.raises(StepTimedOut, match="longer than"), agency.saga() as saga:
        saga.step(slow, compensate=call_off, input={"what": "a"}, timeout=0.05)
    go_on.set()
    assert done == ["undo a"]


@compensation("kinds-slow")
def slow_cancel(what: str) -> None:
    """Take too long the first time."""
    done.append(f"slow {what}")
    if len(done) == 2:
        time.sleep(0.3)


def test_a_compensation_that_takes_too_long_is_tried_again(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        undo = Undo(do=slow_cancel, timeout=0.05, pause=0.001)
        saga.step(call, compensate=undo, input={"what": "a"})
        raise Stop
    assert done == ["a", "slow a", "slow a"]
    assert agency.states(saga.txid) == ["compensated"]


@compensation("kinds-confirm")
def confirm(what: str, output: object) -> None:
    """Take what was reserved."""
    done.append(f"confirm {what} as {output}")


def test_a_reservation_is_confirmed_behind_the_decision(agency: Agency) -> None:
    with agency.saga() as saga:
        given = {"what": "room"}
        answer = saga.reserve(call, confirm=confirm, cancel=call_off, expires=timedelta(minutes=1), input=given)
        assert answer == "reference of room"
        assert done == ["room"]
    assert done == ["room", "confirm room as reference of room"]
    assert agency.open_sagas() == 0


def test_a_reservation_is_cancelled_where_the_saga_fails(agency: Agency) -> None:
    with pytest.raises(Stop), agency.saga() as saga:
        given = {"what": "room"}
        saga.reserve(call, confirm=confirm, cancel=call_off, expires=timedelta(minutes=1), input=given)
        raise Stop
    assert done == ["room", "undo room"]


def test_a_reservation_that_expired_before_the_decision_rolls_back(agency: Agency) -> None:
    with pytest.raises(ReservationExpired), agency.saga() as saga:
        given = {"what": "room"}
        saga.reserve(call, confirm=confirm, cancel=call_off, expires=timedelta(0), input=given)
    assert done == ["room", "undo room"]
    assert saga.decision is Decision.ROLLBACK


def test_a_reservation_that_expires_is_cancelled_although_its_owner_lives(agency: Agency) -> None:
    from txsaga.flows.saga_driver import SagaRecovery

    saga = agency.saga()
    saga.__enter__()
    saga.reserve(call, confirm=confirm, cancel=call_off, expires=timedelta(milliseconds=50), input={"what": "room"})
    time.sleep(0.1)
    assert SagaRecovery(agency.broker.kernel).run_once() == 1
    assert done == ["room", "undo room"]
    saga._steps.leave()


def test_what_a_saga_consumes_is_taken_by_its_commit_and_comes_again_otherwise(agency: Agency) -> None:
    agency.broker.create_topic("orders", queues=1)
    agency.broker.producer("shop").send("orders", b"one")
    agency.told()
    consumer = agency.broker.consumer("agents", ["orders"], member="anna")
    agency.broker.alter_group("agents", first_retry=timedelta(0))
    for attempt in (1, 2):
        for message in consumer.messages(wait=5):
            try:
                with message, agency.saga() as saga:
                    saga.consume(message)
                    agency.book(saga, f"{message.text()} {attempt}")
                    saga.no_return()
                    saga.step(mail, input={"what": "one"})
                    if attempt == 1:
                        raise Stop
            except Stop:
                pass
            break
    assert list(consumer.messages(wait=0)) == []
    consumer.close()
    assert agency.lines() == ["one 1", "undo one 1", "one 2"]
    assert done == ["mail one"]


def test_a_message_that_a_step_publishes_can_only_be_text(agency: Agency) -> None:
    agency.broker.create_topic("news", queues=1)
    with pytest.raises(ConfigError, match="give a text"), agency.saga() as saga:
        saga.step(Send("news", "booked", key=5))  # type: ignore[arg-type]
