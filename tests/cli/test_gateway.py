"""`txsaga gateway`: it serves until it is interrupted, by TLS too, and refuses what would open it to everybody."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from tests.cli.conftest import Cli
from tests.cli.program import environment, started
from tests.gateway.calling import PRODUCER, SERVICE, RawClient
from txsaga.core import exits
from txsaga.gateway import wire
from txsaga.gateway.status import Code
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


def test_it_serves_until_it_is_interrupted_and_another_one_shares_its_port(home_url: str) -> None:
    open_store(home_url).close()
    env = environment(TXSAGA_URL=home_url)
    with started("gateway", "--port", "0", "--share-port", env=env) as first:
        assert first.stdout is not None
        address = first.stdout.readline().strip()
        with started("gateway", "--port", address.rpartition(":")[2], "--share-port", env=env) as second:
            assert second.stdout is not None
            assert second.stdout.readline().strip() == address
            first.send_signal(signal.SIGTERM)
            assert first.wait(20) == exits.OK
            with RawClient(address) as client:
                assert client("Heartbeat", client_type=PRODUCER).status.code == Code.OK
            second.send_signal(signal.SIGINT)
            assert second.wait(20) == exits.OK


def test_it_serves_by_tls(home_url: str, tmp_path: Path) -> None:
    open_store(home_url).close()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*made.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True, timeout=60)
    options = ("--port", "0", "--certificate", str(certificate), "--private-key", str(key))
    with started("gateway", *options, env=environment(TXSAGA_URL=home_url)) as gateway:
        assert gateway.stdout is not None
        port = gateway.stdout.readline().strip().rpartition(":")[2]
        trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
            call = channel.unary_unary(f"{SERVICE}/Heartbeat")
            answer = call(b"\x10\x01", metadata=[("x-mq-client-id", "tester@1")], timeout=20)
        assert wire.read("HeartbeatResponse", answer).status.code == Code.OK
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(20) == exits.OK


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--host", "0.0.0.0"), "opens the gateway to others; give --keys as well"),
        (("--keys", "nowhere"), "the access keys can't be read"),
        (("--port", "70000"), "70000"),
        (("--certificate", "nowhere"), "TLS needs both --certificate and --private-key"),
        (("--certificate", "nowhere", "--private-key", "nowhere"), "the certificate can't be read"),
    ],
)
def test_a_wrong_option_gets_one_line(cli: Cli, words: tuple[str, ...], line: str) -> None:
    said = cli("gateway", *words)
    assert said.code in (2, 3)
    assert line in said.err.replace("\n", " ")


def test_a_port_in_use_gets_one_line(home_url: str) -> None:
    open_store(home_url).close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with started("gateway", "--port", port, env=environment(TXSAGA_URL=home_url)) as gateway:
            _, complaint = gateway.communicate(timeout=30)
    assert (gateway.returncode, f"can't listen on 127.0.0.1:{port}" in complaint) == (3, True)


def test_without_the_packages_the_command_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("txsaga.gateway")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    said = cli("gateway")
    assert (said.code, "pip install 'txsaga[gateway]'" in said.complaint) == (3, True)
