"""Cases about requests whose answer is lost: they are done whole or not at all, and a repeat does nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from txsaga.testing.catalog.client import CatalogReply, Json
from txsaga.testing.catalog.namespace import KitNamespace, NotSupported, Violated, at_once, new_key

TABLES = ("a", "b", "c")
CUTS = (0.0, 0.001, 0.003, 0.006, 0.012, 0.025)
"""Seconds between a request and the end of its connection."""
ABSENT = 0.3
"""Seconds after which a commit of which nothing is seen counts as absent."""
PAUSE = 0.02
NO_KEYS = "the configuration has no idempotency-key-lifetime"


def unknown_outcome(space: KitNamespace) -> str:
    """A commit whose connection is cut becomes whole or stays absent; a repeat with its key succeeds."""
    space.create(*TABLES)
    done = [_cut(space, n, after) for n, after in enumerate(CUTS, start=1)]
    keyed = _cut_and_repeat(space) if space.client.remembers_keys else f"not repeated: {NO_KEYS}"
    return f"{len(done)} cuts: {sum(done)} whole, {len(done) - sum(done)} absent, none partial; {keyed}"


def _cut(space: KitNamespace, n: int, after: float) -> bool:
    """Cut a commit and return whether it was done; a late one fails, since the next one moves its base."""
    space.commit_and_cut(_guarded(space, n), None, after)
    return _settled(space, n, f"{after * 1000:.0f} ms after it was sent") == n


def _guarded(space: KitNamespace, n: int) -> list[Json]:
    return [space.guarded(space.load(table), n) for table in TABLES]


def _settled(space: KitNamespace, n: int, when: str) -> int:
    """Return the counter that all tables show, once they agree; what has not begun after a while is absent."""
    begun, over = time.monotonic() + ABSENT, time.monotonic() + space.patience
    while True:
        found = space.counters(TABLES)
        agreed = len(set(found.values())) == 1
        if agreed and (found["a"] == n or time.monotonic() > begun):
            return found["a"]
        if time.monotonic() > over:
            raise Violated(f"a commit that was cut {when} stays partial for {space.patience:.0f} s: {found}")
        time.sleep(PAUSE)


def _cut_and_repeat(space: KitNamespace) -> str:
    _move_on(space)
    for n, after in enumerate(CUTS, start=100):
        key, changes = new_key(), _guarded(space, n)
        space.commit_and_cut(changes, key, after)
        reply = _insist(space, changes, key)
        if not reply.ok:
            state = space.counters(TABLES)
            raise Violated(
                f"the repeat of a commit that was cut answers {reply}; the counters are {state}, it said {n}"
            )
        space.require(TABLES, n, "after a repeat that was answered with success")
        space.set_all(TABLES, n)
        _insist(space, changes, key)
    return f"{len(CUTS)} repeats with their key succeed once"


def _move_on(space: KitNamespace) -> None:
    """Move the base of all tables, so that a request that was cut and is still under way fails."""
    deadline = time.monotonic() + space.patience
    while not (reply := space.commit(_guarded(space, 99))).ok:
        if time.monotonic() > deadline:
            raise Violated(f"no guarded commit succeeds after the cuts: {reply}")


def _insist(space: KitNamespace, changes: Sequence[Json], key: str) -> CatalogReply:
    """Repeat a request with its key until the answer is no conflict with itself and no failure of the server."""
    deadline = time.monotonic() + min(space.patience, 3)
    while True:
        reply = space.commit(changes, key)
        if (reply.status not in (409, 425, 429) and reply.status < 500) or time.monotonic() > deadline:
            return reply
        time.sleep(PAUSE)


def idempotent_retry(space: KitNamespace) -> str:
    """A repeat with the same key has the same answer and no effect; another body under the key is refused."""
    if not space.client.remembers_keys:
        raise NotSupported(NO_KEYS)
    space.create(*TABLES)
    key, changes = new_key(), [space.plain(table, 1) for table in TABLES]
    first = space.commit(changes, key)
    space.require(TABLES, 1, f"after a commit with a key, answered {first},")
    _require_same(first, space.commit(changes, key), "a repeat")
    space.set_all(TABLES, 2)
    _require_same(first, space.commit(changes, key), "a repeat after another commit")
    space.require(TABLES, 2, "after a repeat of the commit before the last")
    other = space.commit([space.plain(table, 9) for table in TABLES], key)
    space.require_refused(other, TABLES, 2, "another request under the key of one that was done")
    _repeat_a_refusal(space)
    many = _repeat_at_once(space)
    return f"same answer {first.status}, applied once; another body: {other.status}; {many} at once are one"


def _require_same(first: CatalogReply, again: CatalogReply, what: str) -> None:
    if not first.ok or first.status != again.status:
        raise Violated(f"{what} answers {again}, and the first answer was {first}")


def _repeat_a_refusal(space: KitNamespace) -> None:
    """A refusal is final as well: a repeat is refused, though its requirement holds by then."""
    base = space.load("b")
    key, changes = new_key(), [space.plain("a", 3), space.change("b", [_schema(base.schema_id + 1)], [])]
    space.require_refused(space.commit(changes, key), TABLES, 2, "a commit that asserts the next schema of b")
    moved = space.commit([space.guarded(base, 2)])
    if not moved.ok:
        raise Violated(f"a commit of one table answers {moved}")
    if space.load("b").schema_id == base.schema_id + 1:
        space.require_refused(space.commit(changes, key), TABLES, 2, "the repeat of a refused commit")


def _schema(number: int) -> Json:
    return {"type": "assert-current-schema-id", "current-schema-id": number}


def _repeat_at_once(space: KitNamespace) -> int:
    """Send one guarded commit several times at once: if it were done twice, the second would fail."""
    key, changes, count = new_key(), _guarded(space, 10), 5
    replies = at_once([lambda: _insist(space, changes, key)] * count)
    if refused := [str(reply) for reply in replies if not reply.ok]:
        raise Violated(f"{len(refused)} of {count} requests with one key at once answer {refused[0]}")
    space.require(TABLES, 10, f"after {count} requests with one key at once")
    return count


CASES: Sequence[Callable[[KitNamespace], str]] = (unknown_outcome, idempotent_retry)
