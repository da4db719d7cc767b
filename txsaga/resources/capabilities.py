"""
What each kind of resource can do, declared here so that planning a flow needs no connection.

The record is what the kind can do at best; whether a particular server does it (`max_prepared_transactions` is 0 on
most) is checked by the participant's `probe`, before any write. A flow that asks a resource for more is refused by
name. Nothing is assumed of a kind that is not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class ResourceKind(StrEnum):
    """Kinds of resources."""

    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    MYSQL = "mysql"
    SQLITE = "sqlite"
    BROKER = "broker"  # another txsaga store
    HTTP = "http"
    CALLABLE = "callable"
    FILES = "files"
    ROCKETMQ = "rocketmq"  # a topic of a native one
    QUEUE = "queue"  # a topic of the home store, written outside a transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a kind of resource can do."""

    kind: ResourceKind
    two_phase: bool = False  # it can vote, and hold what it voted for
    last_resource: bool = False  # its own commit can be the decision, once per transaction
    aux: bool = False  # an auxiliary lane can commit and roll back in it
    joint_commit: bool = False  # several steps can share one of its transactions
    mixing: bool = True  # coordinated and uncoordinated work may share one instance
    sessions: bool = True  # its work lives in a session, and is lost with it
    tells_reads: bool = False  # it detects that a branch changed nothing
    one_writer: bool = False  # a second writer waits for the first, whatever they write


def _database(
    kind: ResourceKind, *, two_phase: bool = True, tells_reads: bool = False, one_writer: bool = False
) -> Capabilities:
    return Capabilities(
        kind=kind,
        two_phase=two_phase,
        last_resource=True,
        aux=True,
        joint_commit=True,
        tells_reads=tells_reads,
        one_writer=one_writer,
    )


def _voting(kind: ResourceKind, **more: bool) -> Capabilities:
    return Capabilities(kind=kind, two_phase=True, tells_reads=True, **more)


CAPABILITIES: Mapping[ResourceKind, Capabilities] = MappingProxyType(
    {
        each.kind: each
        for each in (
            _database(ResourceKind.POSTGRESQL, tells_reads=True),
            _database(ResourceKind.MARIADB),
            _database(ResourceKind.MYSQL),
            _database(ResourceKind.SQLITE, two_phase=False, one_writer=True),
            _voting(ResourceKind.BROKER, joint_commit=True),
            _voting(ResourceKind.HTTP, sessions=False),
            _voting(ResourceKind.CALLABLE, sessions=False),
            _voting(ResourceKind.ROCKETMQ, sessions=False),
            _voting(ResourceKind.FILES),
            Capabilities(kind=ResourceKind.QUEUE),
        )
    }
)
