"""
txsaga: all-or-nothing message flows. Messages, tables and rows become visible by one durable decision.

Importing this loads nothing heavy; the drivers come with `connect()`.
"""

import typing as _typing

from txsaga.errors import TxSagaError
from txsaga.model.decision import Decision, LocalState
from txsaga.model.message import Delivered, Message
from txsaga.model.saga import Http, Send, Undo
from txsaga.model.topic import TopicType

if _typing.TYPE_CHECKING:
    from txsaga.adapters.evidence import inbox
    from txsaga.adapters.files import Folder
    from txsaga.adapters.tcc import Callables, HttpService, verify
    from txsaga.engine.broker import Broker
    from txsaga.engine.coordinator.again import again
    from txsaga.engine.saga.code import compensation
    from txsaga.wiring import cluster, connect

COMMIT, ROLLBACK, UNKNOWN = LocalState.COMMIT, LocalState.ROLLBACK, LocalState.UNKNOWN

__all__ = [
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "Broker",
    "Callables",
    "Decision",
    "Delivered",
    "Folder",
    "Http",
    "HttpService",
    "LocalState",
    "Message",
    "Send",
    "TopicType",
    "TxSagaError",
    "Undo",
    "again",
    "cluster",
    "compensation",
    "connect",
    "inbox",
    "verify",
]


def __getattr__(name: str) -> object:
    """Load the broker and its drivers when they are first asked for."""
    if name == "connect":
        from txsaga.wiring import connect

        return connect
    if name == "again":
        from txsaga.engine.coordinator.again import again

        return again
    if name == "compensation":
        from txsaga.engine.saga.code import compensation

        return compensation
    if name == "cluster":
        from txsaga.wiring import cluster

        return cluster
    if name == "inbox":
        from txsaga.adapters.evidence import inbox

        return inbox
    if name == "Folder":
        from txsaga.adapters.files import Folder

        return Folder
    if name in ("Callables", "HttpService", "verify"):
        from txsaga.adapters import tcc

        return getattr(tcc, name)
    if name == "Broker":
        from txsaga.engine.broker import Broker

        return Broker
    raise AttributeError(f"module 'txsaga' has no attribute {name!r}")
