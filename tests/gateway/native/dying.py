"""
A program that orders an item in a transaction with RocketMQ and dies at one moment of it.

    python -m tests.gateway.native.dying MOMENT URL ENDPOINT NAME_SERVER TOPIC ITEM
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import txsaga
from txsaga.gateway.native import HalvesBranch, RocketMQ, RocketMQParticipant
from txsaga.gateway.proxy_client import ProxyClient
from txsaga.resources.reservations_store import Reservations

MOMENTS = {
    "half sent": (RocketMQParticipant, "attempt", False),
    "voted": (HalvesBranch, "_vote", False),
    "decided": (RocketMQParticipant, "finish", True),
    "confirmed": (Reservations, "settle", False),
    "ended": (ProxyClient, "end", False),
}
"""Where each of them is: the method, and whether before it."""
COMMITTED = ("decided", "confirmed", "ended")


def die(*_given: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(method: Callable[..., Any], before: bool) -> Callable[..., Any]:
    """Return a method that dies before, or after, what it does."""

    def dying(*given: Any, **named: Any) -> None:
        if not before:
            method(*given, **named)
        die()

    return dying


def main(moment: str, url: str, endpoint: str, name_server: str, topic: str, item: str) -> None:
    where, name, before = MOMENTS[moment]
    setattr(where, name, deadly(getattr(where, name), before))
    orders = RocketMQ(endpoint, topic=topic, name_server=name_server, undecided=10)
    with txsaga.connect(url, participants={"orders": orders}, roles=False, env={}) as broker:
        with broker.producer("shop").coordinated("orders") as tx:
            with tx.on("orders") as out:
                out.send(text=f"item={item};", key=item, tag="red", headers={"color": "blue"})
            tx.send("news", item.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
