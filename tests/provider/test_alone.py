"""Operators that need no flow, and those that vote: each in a small DAG of anybody's."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from airflow.sdk import DAG, task

import txsaga
from tests.provider.house import House
from txsaga.errors import ConfigError
from txsaga.flows.ballot import Ballot
from txsaga.provider import message_flow, publish
from txsaga.provider.operators.call import HttpStep
from txsaga.provider.operators.maintenance import Replay
from txsaga.provider.operators.messages import HalfMessageCommit, HalfMessagePrepare, HalfMessageRollback, Publish
from txsaga.provider.operators.votes import Approval, BallotVote
from txsaga.provider.sensors import CheckBackSensor
from txsaga.provider.waits import wait_of

NEVER = "tests.provider.checkers:never"


@pytest.fixture
def orders(house: House) -> House:
    """Give topics, without any database."""
    house.topic("orders")
    house.topic("news", type="normal")
    return house


@pytest.mark.req("CARD-02", "CARD-04")
def test_a_half_message_is_invisible_until_a_task_commits_it(orders: House) -> None:
    with DAG("halves", schedule=None) as dag:
        kept = HalfMessagePrepare(task_id="kept", topic="orders", checker=NEVER, body={"order": 1})
        dropped = HalfMessagePrepare(task_id="dropped", topic="orders", checker=NEVER, body="two")

        @task
        def look() -> int:
            return len(orders.seen("orders"))

        looked = look()
        commit = HalfMessageCommit(task_id="commit", half=kept.output)
        again = HalfMessageCommit(task_id="again", half="kept")
        drop = HalfMessageRollback(task_id="drop", half=dropped.output)
        [kept, dropped] >> looked >> commit >> again >> drop >> HalfMessageCommit(task_id="late", half="dropped")
    run = orders.run(dag)
    assert run.xcom("look") == 0
    assert {"kept": "success", "again": "success", "drop": "success", "late": "failed"}.items() <= run.tasks.items()
    assert isinstance(run.xcom("kept")["txid"], int)
    assert orders.seen("orders") == [b'{"order": 1}']


def test_a_cleared_run_stores_another_half_and_a_retry_does_not(orders: House) -> None:
    tries: list[int] = []

    class Dying(HalfMessagePrepare):
        def execute(self, context: Any) -> dict[str, object]:
            made = super().execute(context)
            tries.append(int(str(made["txid"])))
            if len(tries) == 1:
                raise RuntimeError("killed")
            return made

    day = datetime(2026, 1, 1, tzinfo=UTC)
    with DAG("halves_again", schedule=None, start_date=day) as dag:
        half = Dying(task_id="half", topic="orders", checker=NEVER, body="x", retries=1, retry_delay=timedelta(0))
        half >> HalfMessageRollback(task_id="drop", half="half")
    for _ in range(2):
        assert orders.run(dag, run_after=day, logical_date=day).state == "success"
    assert tries[0] == tries[1] != tries[2]


@pytest.mark.req("RMQ-68")
def test_nobody_stores_a_half_message_that_nobody_could_be_asked_about() -> None:
    with pytest.raises(ConfigError, match="task 'half' stores a half message without a checker"):
        HalfMessagePrepare(task_id="half", topic="orders")
    with pytest.raises(ConfigError, match="write module:function"):
        HalfMessagePrepare(task_id="half", topic="orders", checker="nowhere")
    with pytest.raises(ConfigError, match="is defined where other processes can't import it"):
        HalfMessagePrepare(task_id="half", topic="orders", checker=lambda question: None)


@pytest.mark.req("CARD-05", "RMQ-68")
def test_a_half_message_is_asked_about_by_the_checker_that_its_task_names_and_no_run() -> None:
    other = "tests.provider.checkers:refuse"
    with DAG("asking", schedule=None):
        half = HalfMessagePrepare(task_id="half", topic="orders", checker=NEVER)
        same = CheckBackSensor(task_id="same", transaction=half.output)
        own = CheckBackSensor(task_id="own", transaction=half.output, checker=other)
    assert (same.target["checker"], own.target["checker"]) == (NEVER, other)
    left, known = {"txid": 5, "checker": "os:abort"}, {"transaction": 5, "checker": ""}
    for said in (left, json.dumps(left)):
        assert wait_of("check-back", {"transaction": said, "checker": ""}) == wait_of("check-back", known)


def test_messages_are_published_without_a_flow(orders: House) -> None:
    with DAG("published", schedule=None) as dag:
        Publish(task_id="plain", topic="news", body="p", mode="plain")
        Publish(task_id="own", topic="orders", body="t", mode="transactional")
    assert orders.run(dag).state == "success"
    assert (orders.seen("news"), orders.seen("orders")) == ([b"p"], [b"t"])


@pytest.mark.parametrize("carried", [True, False])
def test_a_flow_commits_only_with_the_votes_of_its_ballots(orders: House, carried: bool) -> None:
    @message_flow(ballots=[Ballot(name="release", voters=("risk", "limit"))], schedule=None)
    def voted() -> None:
        tell = publish("orders", "voted")
        tell >> BallotVote(task_id="risk", ballot="release", look=lambda run_id: bool(run_id))
        if carried:
            tell >> BallotVote(task_id="limit", ballot="release", yes="{{ 'yes' if 1 < 2 else 'no' }}")

    run = orders.run(voted())
    assert run.tasks["end"] == ("success" if carried else "failed")
    assert len(orders.seen("orders")) == (1 if carried else 0)


@pytest.mark.parametrize("said", ["Approve", "Reject"])
def test_an_approval_is_a_vote(orders: House, said: str) -> None:
    @message_flow(ballots=[Ballot(name="release", voters=("boss",))], schedule=None)
    def approved() -> None:
        publish("orders", "approved") >> Approval(task_id="boss", subject="Release it?", ballot="release")

    with answering(said):
        run = orders.run(approved())
    assert run.tasks["end"] == ("success" if said == "Approve" else "failed"), run.tasks
    assert len(orders.seen("orders")) == (1 if said == "Approve" else 0)


@pytest.mark.req("IBM-65")
def test_what_was_rolled_back_can_be_replayed_by_a_task(orders: House) -> None:
    @message_flow(schedule=None)
    def lost() -> None:
        @task
        def fail() -> None:
            raise ValueError("no")

        publish("orders", "lost") >> fail()

    txid = orders.run(lost()).xcom("begin")["txid"]
    with DAG("replays", schedule=None) as dag:
        Replay(task_id="replay", txid=txid) >> Replay(task_id="twice", txid=txid)
    run = orders.run(dag)
    assert run.state == "success"
    assert run.xcom("replay")["replayed_as"] == run.xcom("twice")["replayed_as"]
    assert orders.seen("orders") == [b"lost"]


@pytest.mark.req("CARD-06")
def test_a_service_is_called_once_and_called_again_to_undo_it(orders: House) -> None:
    heard: list[tuple[str, str]] = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"seat": 7}')

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:

        @message_flow(schedule=None)
        def booked() -> None:
            book = HttpStep(task_id="book", url=f"{url}/book", input={"who": 1}, compensate=txsaga.Http(f"{url}/free"))

            @task
            def fail() -> None:
                raise ValueError("no")

            book >> fail()

        run = orders.run(booked())
    finally:
        server.shutdown()
        server.server_close()
    assert run.xcom("book") == {"seat": 7}
    assert heard == [("/book", '{"who": 1}'), ("/free", '{"who": 1}')]


class answering:
    """A person who answers the first question that comes."""

    def __init__(self, said: str) -> None:
        self._said, self._over = said, threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _answer(self) -> None:
        from airflow.models.hitl import HITLDetail
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.trigger import handle_event_submit
        from airflow.sdk import timezone
        from airflow.triggers.base import TriggerEvent
        from airflow.utils.session import create_session

        while not self._over.wait(0.05):
            with create_session() as session:
                waiting = session.query(TaskInstance).filter_by(state="awaiting_input").all()
                for ti in waiting:
                    asked: Any = session.get(HITLDetail, ti.id)
                    asked.chosen_options, asked.params_input = [self._said], {}
                    asked.responded_at, asked.responded_by = timezone.utcnow(), {"id": "anna", "name": "anna"}
                    event = TriggerEvent(asked.as_resume_event_payload())  # type: ignore[no-untyped-call]
                    handle_event_submit(event, task_instance=ti, session=session)
