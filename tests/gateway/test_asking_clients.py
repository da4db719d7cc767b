"""Operators ask connected clients for their threads, and to run their listener on a message, by way of the store."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import txsaga
from tests.cli.conftest import Cli, bare  # noqa: F401  # a fixture
from tests.docs.snippets import blocks
from tests.gateway.calling import RawClient, listening, message
from tests.gateway.test_official import PROGRAMS, fetched
from tests.gateway.test_transfer import PAGE
from tests.scene.stored import Stored
from tests.store.logins import logins
from txsaga.broker import Broker
from txsaga.core import exits
from txsaga.errors import ClientSilent, ConfigError, RightsMissing
from txsaga.gateway import wire
from txsaga.gateway.client_commands import ClientCommands
from txsaga.gateway.status import Code
from txsaga.store.right import Right

pytestmark = pytest.mark.postgres
READER = {
    "client_type": wire.number("ClientType", "PUSH_CONSUMER"),
    "subscription": {"group": {"name": "mail"}, "subscriptions": [{"topic": {"name": "news"}}]},
}


@pytest.fixture(autouse=True)
def _looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.gateway.asking.LOOK", 0.05)
    monkeypatch.setattr("txsaga.gateway.client_commands.FIND", 0.5)
    monkeypatch.setattr("txsaga.gateway.arrivals.PAUSE", 0.05)  # a gateway stops sooner


@pytest.fixture
def commands(broker: Broker) -> ClientCommands:
    return ClientCommands(broker.kernel.store.engine, broker.kernel.store.namespace)


@contextmanager
def asked(ask: Callable[[], str]) -> Iterator[Future[str]]:
    """Ask in a thread of its own, as an operator does while the client answers."""
    answer: Future[str] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as refused:  # noqa: BLE001  # the test looks at it
            answer.set_exception(refused)

    asking = threading.Thread(target=run)
    asking.start()
    try:
        yield answer
    finally:
        asking.join(30)


def next_command(told: queue.SimpleQueue[Any]) -> Any:
    """Return the command that a client is told next, after its settings."""
    while (command := told.get(timeout=20)).HasField("settings"):
        pass
    return getattr(command, command.WhichOneof("command"))


def code(name: str) -> dict[str, object]:
    return {"code": wire.number("Code", name)}


def stack(nonce: str, text: str) -> dict[str, object]:
    return {"status": code("OK"), "thread_stack_trace": {"nonce": nonce, "thread_stack_trace": text}}


def stored_message(client: RawClient, body: bytes) -> str:
    """Send a message; return its place once it can be read."""
    client.send(message("news", body))
    (found,) = client.messages("places", "news")
    return f"news/{found.system_properties.queue_id}@{found.system_properties.queue_offset}"


@contextmanager
def java(address: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    jar = fetched("rocketmq-client-java-*.jar", "java", "Maven and a JDK")
    words = ["java", f"-Duser.home={home}", "-XX:TieredStopAtLevel=1", "-cp", jar, PROGRAMS / "Asked.java", address]
    env = {**os.environ, "HOME": str(home)}
    pipe = subprocess.PIPE
    with subprocess.Popen([str(each) for each in words], env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """Read lines of a program, within a minute."""
    over = threading.Timer(60, process.kill)
    over.start()
    assert process.stdout is not None
    found = [process.stdout.readline().strip() for _ in range(count)]
    over.cancel()
    return found


@pytest.mark.timeout(120)
def test_a_java_client_shows_its_threads_and_runs_its_listener_through_the_gateway_that_has_it(
    broker: Broker,
    stored: Stored,
    home_url: str,
    bare: Cli,  # noqa: F811
    tmp_path: Path,
) -> None:
    broker.create_group("pushers", max_attempts=1)
    with listening(broker) as other, listening(broker) as address, java(address, tmp_path) as process:
        with RawClient(other) as client, client.connected("news"):
            places = {body: stored_message(client, body.encode()) for body in ("good", "bad")}
            assert {*lines(process, 2)} == {"good\t1", "bad\t1"}
            while not broker.kernel.store.overview.dead_letters().get("pushers"):
                time.sleep(0.05)
            before = settled(stored)
            listing, showing, verifying = shown_on_the_page()
            listed = bare(*listing, "--json", TXSAGA_URL=home_url).documents
            (consumer,) = [each for each in listed if each["kind"] == "push consumer"]
            assert (consumer["group"], consumer["topics"], len(listed)) == ("pushers", ["news"], 2)
            shown = bare(*showing[:-1], consumer["client"], TXSAGA_URL=home_url)
            assert "Asked.main" in shown.out
            for body, result in (("good", "success"), ("bad", "failure")):
                said = bare(*verifying[:-2], consumer["client"], places[body], TXSAGA_URL=home_url)
                assert (said.code, said.out) == (exits.OK, f"the listener reports {result}\n"), said
                assert lines(process, 1)[0].startswith(f"{body}\t")
    assert settled(stored) == before


def shown_on_the_page() -> list[list[str]]:
    """Return the commands of the page, without the program."""
    shown = [line.split() for block in blocks(PAGE) if block.info == "sh" for line in block.body.splitlines()]
    return [words[1:] for words in shown if words[1:2] == ["client"]]


def settled(stored: Stored) -> list[tuple[object, ...]]:
    """Return where the group is, what it holds, and its dead letters."""
    where = "SELECT 'cursor', qid, off FROM cursor WHERE grp = 'pushers' UNION ALL "
    where += "SELECT 'claim', qid, base FROM claim WHERE grp = 'pushers' UNION ALL "
    return sorted(stored.rows(where + "SELECT 'letter', qid, off FROM dead_letter WHERE grp = 'pushers'"))


def test_the_answer_is_what_the_asked_stream_says_with_the_nonce(gateway: str, commands: ClientCommands) -> None:
    with RawClient(gateway, "anna@1") as anna, RawClient(gateway, "ben@1") as ben:
        with anna.connected("news") as told, ben.connected("news"), asked(lambda: commands.ask("anna@1")) as answer:
            nonce = next_command(told).nonce
            ben.say(**stack(nonce, "of ben"))
            anna.say(**stack(nonce[::-1], "of another question"))
            anna.say(status=code("OK"))
            anna.say(recover_orphaned_transaction_command={"transaction_id": nonce})
            time.sleep(0.3)
            assert not answer.done()
            anna.say(**stack(nonce, "main\0: \x1b[2J waits"))
            anna.say(**stack(nonce, "late"))
            assert answer.result(20) == "main: \x1b[2J waits"


def test_what_a_client_says_is_printed_without_what_a_terminal_would_obey(
    client: RawClient,
    home_url: str,
    bare: Cli,  # noqa: F811
) -> None:
    with client.connected("news") as told:

        def answer() -> None:
            client.say(**stack(next_command(told).nonce, "main\n\tat \x1b[2Jwork\n"))

        answering = threading.Thread(target=answer)
        answering.start()
        said = bare("client", "threads", "tester@1", TXSAGA_URL=home_url)
        answering.join(30)
    assert (said.code, said.lines) == (exits.OK, ["main", "    at \\x1b[2Jwork"])


def test_the_stream_that_was_heard_last_is_asked(gateway: str, commands: ClientCommands) -> None:
    with RawClient(gateway) as gone, gone.connected("news") as silent:
        silent.get(timeout=20)
        with RawClient(gateway) as client, client.connected("news") as told:
            told.get(timeout=20)
            with asked(lambda: commands.ask("tester@1")) as answer:
                client.say(**stack(next_command(told).nonce, "alive"))
                assert answer.result(20) == "alive"


def test_a_client_of_two_gateways_is_asked_by_one(gateway: str, broker: Broker, commands: ClientCommands) -> None:
    place = stored_message(RawClient(gateway), b"hello")
    with listening(broker) as other, RawClient(gateway) as here, RawClient(other) as there:
        with here.connected(**READER) as one, there.connected(**READER) as two:
            told = {here: one, there: two}
            assert {Code(each.get(timeout=20).status.code) for each in told.values()} == {Code.OK}
            with asked(lambda: commands.ask("tester@1", place)) as answer:
                time.sleep(0.5)
                ((client, heard),) = [(each, queue) for each, queue in told.items() if not queue.empty()]
                nonce = next_command(heard).nonce
                client.say(status=code("OK"), verify_message_result={"nonce": nonce})
                assert answer.result(20) == "success"
                assert heard.empty()


def test_a_client_that_does_not_answer_is_said_to_be_silent(
    client: RawClient, commands: ClientCommands, monkeypatch: pytest.MonkeyPatch, stored: Stored
) -> None:
    monkeypatch.setattr("txsaga.gateway.client_commands.PATIENCE", 0.7)
    monkeypatch.setattr("txsaga.gateway.clients.PATIENCE", 0.7)
    with client.connected("news") as told, asked(lambda: commands.ask("tester@1")) as answer:
        nonce = next_command(told).nonce
        with pytest.raises(ClientSilent, match="client 'tester@1' has not answered within 1 s"):
            answer.result(20)
        client.say(**stack(nonce, "late"))
        with asked(lambda: commands.ask("tester@1")) as again:
            client.say(**stack(next_command(told).nonce, "in time"))
            assert again.result(20) == "in time"
    assert stored.rows("SELECT FROM client_command") == []


def test_a_client_that_is_not_there_is_not_found(
    client: RawClient,
    home_url: str,
    bare: Cli,  # noqa: F811
) -> None:
    with client.connected("news") as told:
        told.get(timeout=20)
    said = bare("client", "threads", "tester@1", TXSAGA_URL=home_url)
    assert (said.code, said.complaint) == (
        exits.UNAVAILABLE,
        "txsaga: no gateway has a client 'tester@1'; see `txsaga client list`",
    )


def test_a_message_that_a_listener_can_not_get_is_refused(gateway: str, commands: ClientCommands) -> None:
    with RawClient(gateway, "sender@1") as sender, RawClient(gateway, "reader@1") as reader:
        with sender.connected("news") as started, reader.connected(**READER) as joined:
            assert {Code(each.get(timeout=20).status.code) for each in (started, joined)} == {Code.OK}
            for client, place, told in (
                ("sender@1", "news/0@0", "client 'sender@1' is no push consumer"),
                ("reader@1", "orders/0@0", "client 'reader@1' does not read topic 'orders'"),
                ("reader@1", "news/0@0", "queue 0 of topic 'news' ends before offset 0"),
                ("reader@1", "news/0@1", "offset 1 is not in the queue; give one from 0 to 0"),
                ("reader@1", "news/9@0", "topic 'news' has no queue 9"),
                ("reader@1", "news", "'news' is no message; write TOPIC/QUEUE@OFFSET"),
            ):
                with pytest.raises(ConfigError, match=told):
                    commands.ask(client, place)


def test_a_listener_gets_a_message_without_a_receipt(client: RawClient, commands: ClientCommands) -> None:
    place = stored_message(client, b"hello")
    with client.connected(**READER) as told, asked(lambda: commands.ask("tester@1", place)) as answer:
        command = next_command(told)
        assert (command.message.body, command.message.system_properties.receipt_handle) == (b"hello", "")
        client.say(status=code("FAILED_TO_CONSUME_MESSAGE"), verify_message_result={"nonce": command.nonce})
        assert answer.result(20) == "failure"


def test_a_client_that_can_not_do_it_says_so(client: RawClient, commands: ClientCommands) -> None:
    place = stored_message(client, b"hello")
    with client.connected(**READER) as told:
        for kind in ("verify_message_result", "verify_message_command"):  # as in Go, and in Node.js
            with asked(lambda: commands.ask("tester@1", place)) as answer:
                client.say(status=code("NOT_IMPLEMENTED"), **{kind: {"nonce": next_command(told).nonce}})
                with pytest.raises(ConfigError, match="the client refuses: NOT_IMPLEMENTED"):
                    answer.result(20)


def test_clients_are_listed_with_what_they_send_to_and_read(
    gateway: str,
    home_url: str,
    bare: Cli,  # noqa: F811
) -> None:
    with RawClient(gateway, "sender@1") as sender, RawClient(gateway, "reader@1") as reader:
        with sender.connected("orders", "news") as started, reader.connected(**READER) as joined:
            assert {Code(each.get(timeout=20).status.code) for each in (started, joined)} == {Code.OK}
            said = bare("client", "list", TXSAGA_URL=home_url)
    shown = [line.split()[:-1] for line in said.lines]
    assert shown[1:] == [
        ["reader@1", "push", "consumer", "mail", "news", *shown[1][5:]],
        ["sender@1", "producer", "-", "news,", "orders", *shown[2][5:]],
    ]


def test_what_a_killed_operator_left_behind_is_not_asked_and_removed(
    client: RawClient, commands: ClientCommands, stored: Stored
) -> None:
    left = "INSERT INTO client_command (nonce, client, asked) VALUES ('old', 'tester@1', now() - interval '2 minutes')"
    stored.rows(left)
    with client.connected("news") as told:
        told.get(timeout=20)
        time.sleep(0.3)
        assert told.empty()
        with asked(lambda: commands.ask("tester@1")) as answer:
            nonce = next_command(told).nonce
            assert stored.rows("SELECT nonce FROM client_command") == [(nonce,)] != [("old",)]
            client.say(**stack(nonce, "main"))
            assert answer.result(20) == "main"
    assert stored.rows("SELECT FROM client_command UNION ALL SELECT FROM client_answer") == []


def test_operators_ask_and_no_other_login_does(home_url: str, broker: Broker, stored: Stored) -> None:
    with logins(home_url) as made:
        serving = made.url_with(Right.PRODUCER, Right.CONSUMER)
        with txsaga.connect(serving, roles=False, env={}) as servant, listening(servant) as address:
            with RawClient(address) as client, client.connected("news") as told:
                told.get(timeout=20)
                for right in (Right.PRODUCER, Right.CONSUMER, Right.ENGINE):
                    with txsaga.connect(made.url_with(right), roles=False, env={}) as nobody:
                        store = nobody.kernel.store
                        with pytest.raises(RightsMissing, match="client_command"):
                            ClientCommands(store.engine, store.namespace).ask("tester@1")
                with txsaga.connect(made.url_with(Right.OPERATOR), roles=False, env={}) as anna:
                    store = anna.kernel.store
                    commands = ClientCommands(store.engine, store.namespace)
                    assert [each["client"] for each in commands.clients()] == ["tester@1"]
                    with asked(lambda: commands.ask("tester@1")) as answer:
                        client.say(**stack(next_command(told).nonce, "main"))
                        assert answer.result(20) == "main"


def test_a_client_is_not_asked_to_work_on_what_its_key_may_not_read(broker: Broker, commands: ClientCommands) -> None:
    from tests.gateway.test_access import signed
    from txsaga.gateway.access_keys import AccessKey

    keys = {"anna": AccessKey("secret", {"group": ["mail"], "receive": ["orders"]})}
    with listening(broker, keys) as address, RawClient(address, headers=signed()) as client:
        with client.connected(**READER) as told:
            assert Code(told.get(timeout=20).status.code) is Code.OK
            with pytest.raises(ConfigError, match="may not receive from topic 'news'"):
                commands.ask("tester@1", "news/0@0")
