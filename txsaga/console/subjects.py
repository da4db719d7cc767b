"""
What an act is about, as a person knows it: its number, its key and its topics, not only its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txsaga.core.arguments import read_number
from txsaga.core.identity import number_of
from txsaga.core.lifecycle import TxState
from txsaga.errors import ChunkDamaged, ConfigError, UnknownTransaction

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.consume.dead_letter import DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class ActSubject:
    """What one act is about."""

    name: str
    about: tuple[tuple[str, str], ...] = ()  # a label and its text
    contradicted: bool = False  # whether evidence may say otherwise


def subject_of(broker: Broker, on: str, id: str) -> ActSubject:
    """Return what an act on this is about."""
    if on == "letter":
        return _letter(letter_of(broker, id))
    return ActSubject(name=f"{on} {id}") if on in ("topic", "group") else _transaction(broker, id)


def number_in(said: Mapping[str, Any], name: str) -> int:
    """Return a number that the form of an act holds."""
    number = read_number(str(said.get(name, "")))
    if number is None:
        raise ConfigError(f"{name} is {said.get(name)!r}; give its number")
    return number


def letter_of(broker: Broker, id: str) -> DeadLetter:
    """Return a dead letter by its number."""
    number = read_number(id)
    if number is None:
        raise ConfigError(f"{id!r} is not the number of a dead letter")
    found = broker.dead_letters.get(number)
    if found is None:
        raise ConfigError(f"there is no dead letter {number}: it was delivered again, or deleted")
    return found


def _letter(letter: DeadLetter) -> ActSubject:
    try:
        key = letter.message.key
    except ChunkDamaged:
        key = None
    keyed = f" (key {key})" if key else ""
    about = (("Topic", letter.topic), ("Group", letter.group), ("Given up", letter.cause))
    return ActSubject(name=f"letter {letter.id}{keyed}", about=about)


def _transaction(broker: Broker, id: str) -> ActSubject:
    txid, overview = number_of(id, broker.identity), broker.kernel.store.overview
    view, trace = overview.transaction(txid), overview.trace(txid)
    if view is None or trace is None:
        raise UnknownTransaction(f"transaction {txid} is not in this store")
    about = (("Key", view.key or ""), ("Topics", ", ".join(view.topics)), ("Group", view.group), ("Id", view.id))
    voted = trace.life is not None and trace.life.state is TxState.PREPARED
    contradicted = trace.resource is not None or voted
    name = f"transaction {txid}"
    return ActSubject(name=name, about=tuple(each for each in about if each[1]), contradicted=contradicted)
