"""Whatever clients send, the memory of a gateway soon stays as it is."""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import chain
from threading import Event

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.program import environment, started
from tests.gateway.calling import RawClient, message
from tests.gateway.shapes import requests
from tests.gateway.test_streams import METHODS, UNARY, called, settings_of
from txsaga.core import exits
from txsaga.gateway import wire
from txsaga.gateway.server import LARGEST
from txsaga.gateway.status import Code

BODY = 10 * 2**20
BEGINNING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5) + b"\0\1\0\1\1"
"""Of a connection of HTTP/2: the settings, and half a frame with headers."""


def send_large_bodies(address: str) -> None:
    too_large = wire.new("SendMessageRequest", messages=[message("news", bytes(BODY))]).SerializeToString()
    with grpc.insecure_channel(address) as channel:
        for _ in range(8):
            answer = called(channel, "SendMessage", too_large).result()
            assert answer.status.code == Code.MESSAGE_BODY_TOO_LARGE
    with RawClient(address) as client, pytest.raises(grpc.RpcError):  # it is not read at all
        client.send(message("news", bytes(LARGEST)))


def send_random_bytes(address: str) -> None:
    host, port = address.split(":")
    with grpc.insecure_channel(address) as channel:
        for each in [called(channel, name, random.randbytes(20_000)) for name in UNARY for _ in range(20)]:
            assert each.result().status.code
    for beginning in (b"", BEGINNING) * 50:
        with socket.create_connection((host, int(port)), 10) as line, suppress(OSError):  # it is closed at once
            line.sendall(beginning + random.randbytes(50_000))


def send_strange_requests(address: str) -> None:
    @settings(max_examples=80, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(name=st.sampled_from(UNARY), data=st.data())
    def send(name: str, data: st.DataObject) -> None:
        asked = data.draw(requests(METHODS[name].input_type.name)).SerializeToString()
        assert called(channel, name, asked).result().status.code

    with grpc.insecure_channel(address) as channel:
        send()


def leave_in_the_middle(address: str) -> None:
    host, port = address.split(":")
    silence = Event()
    with ExitStack() as lines, grpc.insecure_channel(address) as channel:
        for _ in range(100):
            lines.enter_context(socket.create_connection((host, int(port)), 10)).sendall(BEGINNING)
        orders = settings_of("orders")
        for stream in [called(channel, "Telemetry", chain([orders], iter(silence.wait, True))) for _ in range(200)]:
            assert next(stream).settings.ByteSize()
    silence.set()


def measured(misbehave: Callable[[str], None], address: str, gateway: subprocess.Popen[str]) -> int:
    misbehave(address)
    return megabytes(gateway)


def megabytes(process: subprocess.Popen[str]) -> int:
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(process.pid)], capture_output=True, check=True, timeout=10)
    return int(said.stdout) // 1024


GROWTH: dict[Callable[[str], None], int] = {
    send_random_bytes: 8,
    send_strange_requests: 8,
    leave_in_the_middle: 8,
    send_large_bodies: 100,  # 240 MB more are sent; the allocator keeps some for the next ones
}
"""Megabytes that the gateway may need more after three further rounds than after the first one."""


@pytest.mark.postgres
@pytest.mark.usefixtures("broker")
@pytest.mark.filterwarnings("ignore:Do not use the .random. module")  # roles in other threads use it
def test_strange_clients_soon_need_no_more_memory(home_url: str) -> None:
    with started("gateway", "--port", "0", env=environment(TXSAGA_URL=home_url)) as gateway:
        assert gateway.stdout is not None
        address = gateway.stdout.readline().strip()
        print(f"idle: {megabytes(gateway)} MB")
        for misbehave, most in GROWTH.items():
            first, *later = [measured(misbehave, address, gateway) for _ in range(4)]
            print(f"{misbehave.__name__}: {[first, *later]} MB")
            assert max(later) - first <= most, misbehave.__name__
        gateway.terminate()
        assert "Traceback" not in gateway.communicate(timeout=20)[1]
        assert gateway.returncode == exits.OK
