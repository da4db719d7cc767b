"""
txsaga: all-or-nothing message flows. One durable decision makes messages, tables and rows visible.

Importing this package loads no driver: modules that need one are loaded on first use.
"""

import typing as _typing

from txsaga.core.decision import Decision, LocalState
from txsaga.core.message import Delivered, Message
from txsaga.core.topic import TopicType
from txsaga.errors import TxSagaError

if _typing.TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.checkback.checkers import Question
    from txsaga.checkback.profile import CheckProfile
    from txsaga.clusters.broker_cluster import BrokerCluster
    from txsaga.consume.consumer import Consumer
    from txsaga.consume.delivery import Delivery
    from txsaga.consume.stream import Stream
    from txsaga.core.facts import Fact
    from txsaga.embedded.server import EmbeddedServer
    from txsaga.evidence.inbox import inbox
    from txsaga.flows.actions import Http, Send, Undo, compensation
    from txsaga.flows.ballot import Ballot
    from txsaga.flows.coordinated import Coordinated, again
    from txsaga.flows.flow import Flow
    from txsaga.flows.saga import Saga
    from txsaga.messages.producer import Producer
    from txsaga.messages.transaction import Transaction
    from txsaga.resources.files.folder import Folder
    from txsaga.resources.http import HttpService, verify
    from txsaga.resources.tcc import Callables
    from txsaga.wiring.clusters import cluster
    from txsaga.wiring.connecting import connect

COMMIT, ROLLBACK, UNKNOWN = LocalState.COMMIT, LocalState.ROLLBACK, LocalState.UNKNOWN

__all__ = [
    "COMMIT",
    "ROLLBACK",
    "UNKNOWN",
    "Ballot",
    "Broker",
    "BrokerCluster",
    "Callables",
    "CheckProfile",
    "Consumer",
    "Coordinated",
    "Decision",
    "Delivered",
    "Delivery",
    "EmbeddedServer",
    "Fact",
    "Flow",
    "Folder",
    "Http",
    "HttpService",
    "LocalState",
    "Message",
    "Producer",
    "Question",
    "Saga",
    "Send",
    "Stream",
    "TopicType",
    "Transaction",
    "TxSagaError",
    "Undo",
    "again",
    "cluster",
    "compensation",
    "connect",
    "inbox",
    "verify",
]

_MODULES = {
    "Ballot": "txsaga.flows.ballot",
    "Broker": "txsaga.broker",
    "BrokerCluster": "txsaga.clusters.broker_cluster",
    "Callables": "txsaga.resources.tcc",
    "CheckProfile": "txsaga.checkback.profile",
    "Consumer": "txsaga.consume.consumer",
    "Coordinated": "txsaga.flows.coordinated",
    "Delivery": "txsaga.consume.delivery",
    "EmbeddedServer": "txsaga.embedded.server",
    "Fact": "txsaga.core.facts",
    "Flow": "txsaga.flows.flow",
    "Folder": "txsaga.resources.files.folder",
    "Http": "txsaga.flows.actions",
    "HttpService": "txsaga.resources.http",
    "Producer": "txsaga.messages.producer",
    "Question": "txsaga.checkback.checkers",
    "Saga": "txsaga.flows.saga",
    "Send": "txsaga.flows.actions",
    "Stream": "txsaga.consume.stream",
    "Transaction": "txsaga.messages.transaction",
    "Undo": "txsaga.flows.actions",
    "again": "txsaga.flows.coordinated",
    "cluster": "txsaga.wiring.clusters",
    "compensation": "txsaga.flows.actions",
    "connect": "txsaga.wiring.connecting",
    "inbox": "txsaga.evidence.inbox",
    "verify": "txsaga.resources.http",
}


def __dir__() -> list[str]:
    """List the public names, including those not loaded yet."""
    return __all__


if not _typing.TYPE_CHECKING:  # a type checker knows the names above and rejects any other

    def __getattr__(name: str) -> object:
        """Load a name on first use."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module 'txsaga' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)
