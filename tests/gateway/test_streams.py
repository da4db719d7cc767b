"""Clients that say strange things, in a strange order, or nothing, and that vanish."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from queue import SimpleQueue
from threading import Event
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.chaos.proxy import Loss, network
from tests.gateway.calling import SERVICE, RawClient, listening, message
from tests.gateway.shapes import requests
from tests.gateway.test_wire import FIELDS
from txsaga.broker import Broker
from txsaga.core.message import MAX_BODY
from txsaga.gateway import wire
from txsaga.gateway.clients import ConnectedClient
from txsaga.gateway.server import LARGEST
from txsaga.gateway.status import Code

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore:Do not use the .random. module"),  # roles in other threads use it
]
strange = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
METHODS = wire.SERVICE.methods_by_name
UNARY = sorted(name for name, method in METHODS.items() if not method.server_streaming)
COMMANDS = st.lists(FIELDS | requests("TelemetryCommand").map(lambda made: made.SerializeToString()), max_size=5)
MANY = 5_000
ME = [("x-mq-client-id", "strange@1")]


def called(channel: grpc.Channel, name: str, said: Any) -> Any:
    """Begin a call whose requests are written already; a unary one is a future."""
    method = METHODS[name]
    kinds = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    answer = partial(wire.read, method.output_type.name)
    call = getattr(channel, kinds)(f"{SERVICE}/{name}", response_deserializer=answer)
    return (call if method.server_streaming else call.future)(said, metadata=ME, timeout=30)


def refused_well(caplog: pytest.LogCaptureFixture, *answers: Any) -> bool:
    """Tell whether answers have a code that fits, and nothing failed."""
    odd = {each.status.code for each in answers} & {0, Code.INTERNAL_SERVER_ERROR}
    return not odd and not [record for record in caplog.records if record.exc_info]


def has_settings(command: bytes) -> bool:
    try:
        return bool(wire.read("TelemetryCommand", command).HasField("settings"))
    except DecodeError:
        return False


def settings_of(*topics: str) -> bytes:
    """Write the settings of a client that sends to topics."""
    publishing = {"topics": [{"name": each} for each in topics]}
    return bytes(wire.new("TelemetryCommand", settings={"publishing": publishing}).SerializeToString())


@pytest.fixture
def stocked(client: RawClient) -> None:
    """Put messages into topics."""
    tags: list[dict[str, Any]] = [{"tag": "a"}, {"tag": "b"}, {}]
    for tag in tags:
        client.send(message("news", properties={"a": "2", "b": "x"}, **tag))
        half = client.send(message("orders", type="TRANSACTION")).entries[0]
        client.end(half.transaction_id, "COMMIT")


@strange
@given(commands=COMMANDS)
def test_settings_among_any_commands_are_answered_each(
    gateway: str, caplog: pytest.LogCaptureFixture, commands: Sequence[bytes]
) -> None:
    with grpc.insecure_channel(gateway) as channel:
        answers = [*called(channel, "Telemetry", iter(commands))]
    assert len(answers) == sum(map(has_settings, commands))
    assert refused_well(caplog, *answers), answers


@pytest.mark.usefixtures("stocked")
@strange
@given(name=st.sampled_from(["ReceiveMessage", "PullMessage"]), wait=st.sampled_from([-1, 0, 0.02]), data=st.data())
def test_any_request_for_messages_gets_a_status_first(
    gateway: str, caplog: pytest.LogCaptureFixture, name: str, wait: float, data: st.DataObject
) -> None:
    request = data.draw(requests(f"{name}Request"))
    request.long_polling_timeout.seconds, request.long_polling_timeout.nanos = wire.in_parts(wait).values()
    with grpc.insecure_channel(gateway) as channel:
        answers = [*called(channel, name, request.SerializeToString())]
    assert refused_well(caplog, answers[0]), answers


@pytest.mark.usefixtures("stocked")
@strange
@given(name=st.sampled_from(UNARY), data=st.data())
def test_any_request_gets_an_answer(
    gateway: str, caplog: pytest.LogCaptureFixture, name: str, data: st.DataObject
) -> None:
    request = data.draw(requests(METHODS[name].input_type.name))
    with grpc.insecure_channel(gateway) as channel:
        answer = called(channel, name, request.SerializeToString()).result()
    assert refused_well(caplog, answer), answer


def streams() -> int:
    """Count the streams that gateways of this process hold."""
    gc.collect()
    return sum(isinstance(each, ConnectedClient) for each in gc.get_objects())


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def impatient(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a gateway that soon gives silent clients up."""
    monkeypatch.setattr("txsaga.gateway.clients.SILENT", 0.5)
    monkeypatch.setattr("txsaga.gateway.server.TIDY", 0.1)
    with listening(broker) as address:
        yield address


def test_streams_on_which_nothing_is_said_are_ended(impatient: str, caplog: pytest.LogCaptureFixture) -> None:
    silence = Event()
    with grpc.insecure_channel(impatient) as channel:
        calls = [called(channel, "Telemetry", iter(silence.wait, True)) for _ in range(50)]
        until(lambda: streams() == 50)
        assert [[*each] for each in calls] == [[]] * 50
    silence.set()
    until(lambda: streams() == 0)
    assert refused_well(caplog)


def test_a_client_whose_network_is_gone_leaves_nothing(
    impatient: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    group, silence = broker.kernel.store.registry.group("orders").id, Event()
    orders = settings_of("orders")
    with network(f"gateway://{impatient}") as line:
        with grpc.insecure_channel(line.url.removeprefix("gateway://")) as channel:
            stream = called(channel, "Telemetry", chain([orders], iter(silence.wait, True)))
            next(stream)
            assert group in broker.kernel.checkers.by_id
            line.lose(b"", Loss.MUTE)
            heartbeat = called(channel, "Heartbeat", b"")
            until(lambda: streams() == 0 and group not in broker.kernel.checkers.by_id)
            assert (stream.is_active(), heartbeat.done()) == (True, False)
            silence.set()
    assert refused_well(caplog)


def test_a_client_that_reads_nothing_is_soon_not_read_either(gateway: str, caplog: pytest.LogCaptureFixture) -> None:
    command, said = settings_of(*["x" * 100] * 200), SimpleQueue[None]()

    def flood() -> Iterator[bytes]:
        for _ in range(MANY):
            said.put(None)
            yield command

    with grpc.insecure_channel(gateway) as channel:
        stream = called(channel, "Telemetry", flood())
        before = -1
        while before != (before := said.qsize()):
            time.sleep(0.5)
        assert 0 < before < MANY
        stream.cancel()
    until(lambda: streams() == 0)
    assert refused_well(caplog)


@pytest.mark.parametrize("name", ["SendMessage", "ReceiveMessage", "PullMessage"])
def test_calls_that_are_broken_off_at_any_moment_log_nothing(
    gateway: str, client: RawClient, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    sent: dict[str, Any] = {"messages": [message("news", bytes(2**20))] * 3}
    queue: dict[str, Any] = {"message_queue": {"topic": {"name": "news"}}, "batch_size": 16}
    for _ in range(4):
        client("SendMessage", **sent)
    for moment in range(30):
        asked = sent if name == "SendMessage" else {**queue, "group": {"name": f"readers{moment}"}}
        with grpc.insecure_channel(gateway) as channel:
            call = called(channel, name, wire.new(f"{name}Request", **asked).SerializeToString())
            if METHODS[name].server_streaming:
                next(call)
            time.sleep(moment / 1_000)
            call.cancel()
    assert refused_well(caplog)


@pytest.mark.parametrize("size", [MAX_BODY, MAX_BODY + 1, LARGEST - 100, LARGEST + 1], ids=str)
def test_a_body_above_the_limit_has_a_code_and_the_connection_stays(
    client: RawClient, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    with client.connected("news") as told:
        told.get(timeout=20)
        if size > LARGEST:  # it is not read at all
            with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
                client.send(message("news", bytes(size)))
        else:
            code = Code.OK if size <= MAX_BODY else Code.MESSAGE_BODY_TOO_LARGE
            assert Code(client.send(message("news", bytes(size))).status.code) is code
        assert Code(client.send(message("news")).status.code) is Code.OK
        assert streams() == 1
    assert refused_well(caplog)
