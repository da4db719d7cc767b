"""
Consumer groups and their dead letters: how a program creates, alters, replays and purges them.

Every change is announced before and after. A backout topic must exist when it is named: finding out at the first
message that runs out of attempts would be too late.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from txsaga.consume.claim import ConsumerGroup, Policy, PolicyChanges, Style
from txsaga.consume.dead_letter import DeadLetter
from txsaga.consume.queue_reader import Start, first_offset
from txsaga.core import facts
from txsaga.core.arguments import check_count, check_kind, check_text, list_of
from txsaga.core.kernel import Kernel
from txsaga.core.topic import check_name
from txsaga.errors import ConfigError, TopicNotRead, UnknownGroup
from txsaga.inspect.overview import Position, Reading

logger = logging.getLogger("txsaga")

NAME = "give its name"


def open_group(kernel: Kernel, name: str, style: Style, policy: Policy) -> ConsumerGroup:
    """Register a group, or find it."""
    check_name(name, what="consumer group", known=lambda: kernel.store.groups.find(name) is not None)
    _require_backout(kernel, policy)
    with kernel.announce.around(facts.Registering, about=f"consumer group {name}"):
        return _warned(kernel.store.groups.open(name, style, policy))


def create_group(kernel: Kernel, name: str, policy: Policy) -> ConsumerGroup:
    """Register a group of the work style; an existing one stays as it is, but its `ordered` must match."""
    group = open_group(kernel, name, Style.WORK, policy)
    if group.policy.ordered is not policy.ordered:
        kept = "keeps" if group.policy.ordered else "does not keep"
        raise ConfigError(f"group {name!r} exists and {kept} the order of keys; delete it first, or use another name")
    return group


def alter_group(kernel: Kernel, name: str, changes: PolicyChanges) -> ConsumerGroup:
    """Change parts of a group's policy."""
    known = _required(kernel, name)
    _require_backout(kernel, replace(known.policy, **changes))
    if not changes:
        return _warned(known)
    with kernel.announce.around(facts.Registering, about=f"consumer group {name}"):
        return _warned(kernel.store.groups.alter(name, changes))


class Move(NamedTuple):
    """A new position of a group in one queue."""

    topic: str
    queue: int
    before: int
    after: int


def reset_group(kernel: Kernel, name: str, topic: str | None, start: Start, *, dry_run: bool) -> Sequence[Move]:
    """Move a group's positions in its topics; return the moves, which a dry run only plans."""
    _required(kernel, name, topic)
    readings = _readings(kernel, name, topic)
    moves, positions = [], {}
    for reading in readings:
        qids = kernel.store.registry.topic(reading.topic).qids
        for position in reading.positions:
            qid = qids[position.queue]
            positions[qid] = first_offset(kernel.store.log, qid, start)
            moves.append(Move(reading.topic, position.queue, position.lowest, positions[qid]))
    if positions and not dry_run:
        with kernel.announce.around(facts.Positioning, about=name):
            kernel.store.queues.reset(name, positions)
    return moves


def leave_topic(kernel: Kernel, name: str, topic: str, *, dry_run: bool) -> Sequence[Position]:
    """Remove a group from a topic; return its positions, which a dry run leaves as they are."""
    check_text(topic, "the topic", NAME)
    _required(kernel, name, topic)
    qids = kernel.store.registry.topic(topic).qids
    readings = _readings(kernel, name, topic)
    if not dry_run:
        with kernel.announce.around(facts.Positioning, about=name):
            kernel.store.queues.forget(name, qids)
    return [position for reading in readings for position in reading.positions]


def _required(kernel: Kernel, name: str, topic: str | None = None) -> ConsumerGroup:
    check_text(name, "the consumer group", NAME)
    if topic is not None:
        check_text(topic, "the topic", NAME)
    if (known := kernel.store.groups.find(name)) is None:
        raise UnknownGroup(name)
    return known


def _readings(kernel: Kernel, name: str, topic: str | None) -> Sequence[Reading]:
    readings = [r for r in kernel.store.overview.readings() if r.group == name and topic in (None, r.topic)]
    if topic is not None and not readings:
        kernel.store.registry.topic(topic)
        raise TopicNotRead(name, topic)
    return readings


PAGE = 500
"""Letters per transaction when all letters of a group are replayed or purged."""
NEWEST_ID = 2**63 - 1
"""No letter has a higher number."""


class DeadLetters:
    """The dead letters of all groups."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def list(self, group: str | None = None, limit: int = 100) -> Sequence[DeadLetter]:
        """Return dead letters, newest first; of all groups if none is named."""
        if group is not None:
            check_text(group, "group", "give its name, or None for all groups")
        check_count(limit, "limit")
        return self._kernel.store.dead_letters.list(group, min(limit, NEWEST_ID))

    def pages(self, group: str) -> Iterator[Sequence[int]]:
        """Yield the numbers of all letters that a group has now, oldest first, in pages."""
        newest, after = max((letter.id for letter in self.list(group, 1)), default=0), 0
        while page := [id for id in self._kernel.store.dead_letters.ids(group, after, PAGE) if id <= newest]:
            yield page
            after = page[-1]

    def get(self, id: int) -> DeadLetter | None:
        """Return one letter."""
        possible = _numbers([id])
        return self._kernel.store.dead_letters.get(id) if possible else None

    def replay(self, ids: Sequence[int]) -> int:
        """Redeliver letters to their groups, as messages that were never delivered; return how many.

        A letter whose earlier copy still waits stays, and one whose group is gone.
        """
        ids = _numbers(ids)
        with self._kernel.announce.around(facts.Replaying):
            return self._kernel.store.dead_letters.replay(ids)

    def purge(self, ids: Sequence[int]) -> int:
        """Delete letters for good; return how many there were."""
        ids = _numbers(ids)
        with self._kernel.announce.around(facts.Purging):
            return self._kernel.store.dead_letters.purge(ids)


def _numbers(ids: Sequence[int]) -> list[int]:
    """Return those that can be numbers of letters; raise `ConfigError` for what is no number."""
    numbers = list_of(ids, "ids", "give a list of the numbers of letters")
    for id in numbers:
        check_kind(id, int, "the number of a letter", "give a whole number, as dead_letters.list() shows it")
    return [id for id in numbers if 0 < id <= NEWEST_ID]


def _require_backout(kernel: Kernel, policy: Policy) -> None:
    if policy.backout is not None:
        kernel.store.registry.topic(policy.backout)


def _warned(group: ConsumerGroup) -> ConsumerGroup:
    if group.policy.loses:
        logger.warning(
            "group %s has neither a backout topic nor dead letters: a message that fails %d times is lost",
            group.name,
            group.policy.max_attempts,
            extra={"group": group.name},
        )
    return group
