"""
Reach the databases that a check-back question is about, through Airflow connections of the same names, on first use.

A broker of a task or of the triggerer only knows the databases of its own flow, but check-back asks about other work,
whose evidence may be elsewhere. If no connection has the name, the question stays open and the engine asks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from txsaga.errors import ConfigError, ResourceUnknown

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.evidence.ports import Evidence

Register = Callable[[str, str], None]
"""Register the database of a connection under a name, or raise `ConfigError`."""


def reach_evidence(broker: Broker, register: Register) -> None:
    """Let a broker find evidence through connections of this Airflow."""
    known = broker.kernel.evidence

    def find(named: object) -> tuple[str, Evidence]:
        try:
            return known(named)
        except ResourceUnknown:
            if not isinstance(named, str) or not _registered(named, register):
                raise
        return known(named)

    broker.kernel.evidence = find


def connections_of(name: str) -> Iterator[str]:
    """Yield the connection ids that a resource of the store may have."""
    yield from dict.fromkeys((name, name.replace("_", "-"), name.upper()))


def _registered(name: str, register: Register) -> bool:
    for connection in connections_of(name):
        try:
            register(name, connection)
        except ConfigError:
            continue
        return True
    return False
