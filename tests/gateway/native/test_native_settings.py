"""Which settings of RocketMQ's brokers are refused, and addresses that are none."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from txsaga.errors import ConfigError, ResourceManagerFailed
from txsaga.gateway.native import RocketMQ, check_settings
from txsaga.gateway.remoting import ask

DEFAULTS = {"transactionCheckInterval": "30000", "transactionTimeOut": "6000", "transactionOpBatchInterval": "3000"}
DEFAULTS |= {"transactionCheckMax": "15", "rejectTransactionMessage": "false"}


def test_the_defaults_of_rocketmq_hold_for_450_seconds_with_those_to_finish() -> None:
    check_settings("b:1", DEFAULTS, 420)
    with pytest.raises(ConfigError, match=r"gives up .* after 450 s.* raise transactionCheckMax \(15\)"):
        check_settings("b:1", DEFAULTS, 421)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("transactionCheckInterval", "2000", r"set transactionCheckInterval \(2000 ms\) above .* \(3000 ms\)"),
        ("transactionTimeOut", "3000", r"set transactionTimeOut \(3000 ms\) above .* \(3000 ms\)"),
        ("rejectTransactionMessage", "true", "set rejectTransactionMessage=false"),
    ],
)
def test_a_broker_that_delivers_twice_or_takes_nothing_is_refused_with_the_remedy(
    name: str, value: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=remedy):
        check_settings("b:1", {**DEFAULTS, name: value}, 1)


@pytest.mark.parametrize(
    "address", ["", "localhost", "localhost:", ":8081", "http://here:1", "here:99999", "here:0", "::1:80", 5, None]
)
def test_an_address_that_is_none_is_refused(address: Any) -> None:
    for given in (
        {"endpoint": address, "name_server": "here:1"},
        {"endpoint": "here:1", "name_server": address},
        {"endpoint": "here:1", "name_server": f"here:2;{address}"},
    ):
        with pytest.raises(ConfigError, match="host:port"):
            RocketMQ(topic="orders", **given)
    RocketMQ("[::1]:1", topic="orders", name_server="here:1;127.0.0.1:65535")


@pytest.mark.parametrize("given", [{"keys": "ab"}, {"keys": ("a",)}, {"keys": ("a", "b\n")}, {"tls": True}], ids=str)
def test_keys_and_credentials_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))} (is|are)"):
        RocketMQ("here:1", topic="orders", name_server="here:2", **given)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\x04null"])
def test_a_server_that_speaks_something_else_can_not_be_asked(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(1000)
                caller.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ResourceManagerFailed, match="no answer of RocketMQ"):
            ask(f"127.0.0.1:{server.getsockname()[1]}", 26)
        thread.join(10)
