"""Cases about what readers see: several tables change at one moment, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from uuid import uuid4

from txsaga.testing.catalog.client import CatalogReply, Json
from txsaga.testing.catalog.namespace import (
    KitNamespace,
    LoadedTable,
    Violated,
    at_once,
    in_background,
    same_table,
    set_counter,
)

TABLES = ("a", "b", "c", "d")
THREE = TABLES[:3]
READERS = 3


@dataclass(frozen=True, slots=True)
class Sighting:
    """A counter that somebody was shown: by a load, or by the answer to a commit."""

    where: str
    n: int
    sent: float
    answered: float


def torn_read(space: KitNamespace) -> str:
    """
    A load that is sent after another was answered never shows less than that one, whatever table each is of.

    A writer counts up in all tables by one commit at a time, so every moment has one number for all tables. No
    isolation across requests is needed for this: of a and b read in turn, an older b proves that a commit was visible
    in a before it was in b; a newer b proves nothing. An answered commit, and a 304, are sightings as loads are.
    """
    space.create(*TABLES)
    watch = TornReadWatch(space)
    with in_background(watch.read, READERS) as over:
        commits = _count_up(space, watch, over)
    watch.check()
    loads = len(watch.sightings) - commits
    return f"{loads} loads during {commits} commits of {len(TABLES)} tables, none older than one before it"


@dataclass
class TornReadWatch:
    """What the readers of a namespace were shown."""

    space: KitNamespace
    sightings: list[Sighting] = field(default_factory=list)
    _started: list[None] = field(default_factory=list)

    def read(self, over: threading.Event) -> None:
        """Load the tables in turn, every second reader backwards, every second round by ETag."""
        self._started.append(None)
        order, known = TABLES[:: 1 if len(self._started) % 2 else -1], dict[str, LoadedTable]()
        for by_etag in cycle((False, True)):
            if over.is_set():
                return
            seen = [self._see(table, known, by_etag=by_etag) for table in order]
            self.sightings += seen
            if older(seen):
                over.set()  # proven: the rest of the time can be saved

    def _see(self, table: str, known: dict[str, LoadedTable], *, by_etag: bool) -> Sighting:
        before = known.get(table)
        etag = before.reply.headers.get("etag") if before and by_etag else None
        reply = self.space.look(table, etag)
        if reply.ok:
            known[table] = LoadedTable(table, reply)
        elif reply.status != 304 or etag is None:
            raise Violated(f"load of table {table} answers {reply}")
        return Sighting(f"table {table}", known[table].n, reply.sent, reply.answered)

    def check(self) -> None:
        """Check that no sighting is older than one that was over before it began."""
        if found := older(self.sightings):
            first, second = found
            ms = (second.sent - first.answered) * 1000
            raise Violated(f"{second.where} shows {second.n} {ms:.1f} ms after {first.where} has shown {first.n}")


def older(sightings: Iterable[Sighting]) -> tuple[Sighting, Sighting] | None:
    """Return two sightings of which the second began when the first was over, and shows less."""
    by_end = sorted(sightings, key=lambda each: each.answered)
    newest, at = None, 0
    for each in sorted(by_end, key=lambda each: each.sent):
        while at < len(by_end) and by_end[at].answered <= each.sent:
            newest = by_end[at] if newest is None or by_end[at].n > newest.n else newest
            at += 1
        if newest is not None and each.n < newest.n:
            return newest, each
    return None


def _count_up(space: KitNamespace, watch: TornReadWatch, over: threading.Event) -> int:
    """Commit 1, 2, 3, … to all tables until the time is over; return how many were done."""
    deadline, n = time.monotonic() + space.seconds, 0
    while time.monotonic() < deadline and not over.is_set():
        turned = TABLES[n % len(TABLES) :] + TABLES[: n % len(TABLES)]
        reply = space.commit([space.plain(table, n + 1) for table in turned])
        if not reply.ok:
            raise Violated(f"commit {n + 1} of the only writer answers {reply}")
        n += 1
        watch.sightings.append(Sighting("a commit", n, reply.sent, reply.answered))
    return n


def partial_commit(space: KitNamespace) -> str:
    """A commit of which any one change is refused, at any place in the request, leaves no other change."""
    space.create(*THREE)
    space.set_all(THREE, 1)
    answers = [_spoiled(space, what, at) for what in SPOILERS for at in range(len(THREE))]
    rounds = _drop_in_the_middle(space)
    summary = f"{len(answers)} commits with a bad change and {rounds} during a drop left nothing partial"
    if unclear := [answer for answer in answers if answer]:
        raise Violated(f"{summary}, but {len(unclear)} of them are not refused by a 4xx, as {unclear[0]}")
    return summary


def _spoiled(space: KitNamespace, what: str, at: int) -> str:
    """Spoil one change of a commit; return the answer if it is no refusal."""
    changes = [space.plain(each, 2) for each in THREE]
    changes[at] = SPOILERS[what](space, space.load(THREE[at]))
    reply = space.commit(changes)
    answer = f"{what} in change {at + 1} of {len(THREE)}: {reply}"
    space.require(THREE, 1, f"after a commit with {answer},")
    return "" if reply.refused else answer


def _wrong(requirement: Json) -> Callable[[KitNamespace, LoadedTable], Json]:
    return lambda space, table: space.plain(table.name, 2, requirement)


def _unusable(update: Json) -> Callable[[KitNamespace, LoadedTable], Json]:
    return lambda space, table: space.change(table.name, [same_table(table)], [set_counter(2), update])


def _missing(space: KitNamespace, table: LoadedTable) -> Json:
    return space.plain(f"{table.name}_missing", 2)


SPOILERS: dict[str, Callable[[KitNamespace, LoadedTable], Json]] = {
    "the uuid of another table": _wrong({"type": "assert-table-uuid", "uuid": str(uuid4())}),
    "a snapshot that is not current": _wrong({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 4711}),
    "a schema that is not current": _wrong({"type": "assert-current-schema-id", "current-schema-id": 4711}),
    "an update of an unknown kind": _unusable({"action": "txsaga-kit-unknown"}),
    "a schema that does not exist": _unusable({"action": "set-current-schema", "schema-id": 4711}),
    "a table that does not exist": _missing,
}
"""What makes one change of a commit bad."""


def _drop_in_the_middle(space: KitNamespace) -> int:
    """Drop a table during a commit, some times: what the others show is the answer, for both alike."""
    delays = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
    for n, delay in enumerate(delays, start=2):
        before = space.load("a").n
        changes = [space.plain(each, n) for each in THREE]
        reply, _ = at_once([partial(space.commit, changes), partial(_drop, space, delay)])
        left = space.counters(("a", "c"))
        expected = {n} if reply.ok else {before} if reply.refused else {n, before}
        if len(set(left.values())) > 1 or not set(left.values()) <= expected:
            raise Violated(f"a commit answers {reply} during the drop of b, and then the counters are {left}")
        if space.exists("b"):  # the drop was refused during the commit
            space.drop("b")
        space.create("b")
    return len(delays)


def _drop(space: KitNamespace, after: float) -> CatalogReply:
    time.sleep(after)
    return space.drop("b")


def table_twice(space: KitNamespace) -> str:
    """A request that names one table twice is refused whole, or applied whole and in order."""
    space.create(*THREE)
    for n, order in ((1, "aba"), (3, "baa"), (5, "aab")):
        before, numbers = space.counters(THREE), iter((n, n + 1))
        changes = [space.plain(each, next(numbers) if each == "a" else n + 1) for each in order]
        changes[order.index("a")]["updates"].append({"action": "set-properties", "updates": {"kit.first": str(n)}})
        reply = space.commit(changes)
        after, first = space.counters(THREE), space.load("a").properties.get("kit.first")
        whole = reply.ok and after == {"a": n + 1, "b": n + 1, "c": 0} and first == str(n)
        none = reply.refused and after == before and first is None
        if not whole and not none:
            raise Violated(f"changes of {', '.join(order)} answer {reply}; then {after}, a's first change {first}")
        if none and reply.status != 400:
            raise Violated(f"it is refused by {reply}, and the protocol has 400 for a bad request")
    return "applied whole, in order" if reply.ok else f"refused whole: {reply}"


def empty_request(space: KitNamespace) -> str:
    """A commit of no changes is done as nothing or refused as a bad request, and changes nothing."""
    space.create(*THREE)
    reply = space.commit([])
    space.require(THREE, 0, "after a commit of no changes")
    if not reply.ok and not reply.refused:
        raise Violated(f"a commit of no changes answers {reply}")
    nothing = space.commit([space.change(table, [], []) for table in THREE])
    space.require(THREE, 0, "after a commit of changes without updates")
    if not nothing.ok and not nothing.refused:
        raise Violated(f"a commit of changes without updates answers {nothing}")
    return f"no changes: {reply}; changes without updates: {nothing}"


def unknown_requirement(space: KitNamespace) -> str:
    """A requirement that the server does not know is refused with 400, at any place, and nothing is applied."""
    space.create(*THREE)
    replies = [_require_unknown(space, at) for at in range(len(THREE))]
    return f"at each of {len(THREE)} places: {replies[0]}"


def _require_unknown(space: KitNamespace, at: int) -> str:
    changes = [space.plain(each, 1) for each in THREE]
    changes[at]["requirements"].append({"type": "assert-txsaga-kit-unknown", "value": 1})
    reply = space.commit(changes)
    space.require_refused(reply, THREE, 0, f"a commit with an unknown requirement in change {at + 1}")
    if reply.status != 400:
        raise Violated(f"an unknown requirement answers {reply}, and the protocol says 400")
    return str(reply)


CASES: Sequence[Callable[[KitNamespace], str]] = (
    torn_read,
    partial_commit,
    table_twice,
    empty_request,
    unknown_requirement,
)
