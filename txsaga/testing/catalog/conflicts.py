"""Cases about clients that want the same tables: one wins whole, the others change nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from txsaga.testing.catalog.client import CatalogReply, Json
from txsaga.testing.catalog.files import append, require_reachable
from txsaga.testing.catalog.namespace import OWNER, KitNamespace, NotSupported, Violated, at_once, same_table

TABLES = ("a", "b", "c")
ORDERS = (("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("c", "a"))
"""The tables that each client counts up in, in the order of its requests."""
STEPS = 5
CLIENTS = 5
ROUNDS = 4


def same_base(space: KitNamespace) -> str:
    """Of several clients that commit to the same tables from the same base, exactly one wins, in every table."""
    space.create(*TABLES)
    for n in range(1, ROUNDS + 1):
        bases = [space.load(table) for table in TABLES]
        commits = [
            [space.guarded(base, n, f"client {number}") for base in (bases if number % 2 else bases[::-1])]
            for number in range(CLIENTS)
        ]
        replies = at_once([partial(space.commit, changes) for changes in commits])
        _require_one_winner(space, TABLES, replies, n)
    return f"{ROUNDS} rounds of {CLIENTS} clients: one winner each, in all {len(TABLES)} tables"


def _require_one_winner(space: KitNamespace, tables: Sequence[str], replies: Sequence[CatalogReply], n: int) -> None:
    winners = {f"client {number}" for number, reply in enumerate(replies) if reply.ok}
    unknown = {f"client {number}" for number, reply in enumerate(replies) if not reply.ok and not reply.refused}
    owners = {table: space.load(table).properties.get(OWNER) for table in tables}
    summary = f"{len(winners)} of {len(replies)} clients were answered with success, and the tables are of {owners}"
    if len(winners) > 1 or len(set(owners.values())) > 1 or not set(owners.values()) <= (winners or unknown):
        raise Violated(f"{summary}; answers: {_tally(replies)}")
    space.require(tables, n, "after one client has won,")


def _tally(replies: Sequence[CatalogReply]) -> str:
    counted = Counter(reply.status for reply in replies)
    return ", ".join(f"{count} × {status}" for status, count in sorted(counted.items()))


def opposite_orders(space: KitNamespace) -> str:
    """Commits to overlapping tables in opposite orders all end in time, and each success is counted exactly once."""
    space.create(*TABLES)
    started = time.monotonic()
    unknown = at_once([partial(_count_up, space, order) for order in ORDERS])
    expected = Counter(table for order in ORDERS for table in order * STEPS)
    for table, n in space.counters(TABLES).items():
        if not expected[table] <= n <= expected[table] + sum(unknown):
            raise Violated(f"table {table} counts {n} after {expected[table]} commits that were answered with success")
    took = time.monotonic() - started
    return (
        f"{len(ORDERS) * STEPS} commits of {len(ORDERS)} clients in {took:.1f} s, all counted; {sum(unknown)} unknown"
    )


def _count_up(space: KitNamespace, order: Sequence[str]) -> int:
    """Count up in some tables until enough commits are done; return how many ended with an unknown outcome."""
    deadline, done, unknown = time.monotonic() + space.patience, 0, 0
    while done < STEPS:
        bases = [space.load(table) for table in order]
        reply = space.commit([space.guarded(base, base.n + 1) for base in bases])
        done, unknown = done + reply.ok, unknown + (reply.status >= 500)
        if done < STEPS and time.monotonic() > deadline:
            raise Violated(f"{space.patience:.0f} s were not enough for {STEPS} commits to {order}: last {reply}")
    return unknown


def zombie_commit(space: KitNamespace) -> str:
    """A commit that was built on a table dropped since, or on an old schema or snapshot of it, is refused whole."""
    space.create(*TABLES)
    for table in TABLES:
        _recreated(space, table)
    for table in TABLES:
        _moved(space, table)
    try:
        require_reachable(space.load("a"))
        for table in TABLES:
            _old_snapshot(space, table)
        snapshots = "old snapshots"
    except NotSupported as reason:
        snapshots = f"old snapshots not tried: {reason}"
    return f"in each of {len(TABLES)} places refused whole: recreated tables, old schemas, {snapshots}"


def _recreated(space: KitNamespace, table: str) -> None:
    old = space.load(table)
    space.drop(table)
    space.create(table)
    late = space.plain(table, 1, same_table(old))
    reply = space.commit([late if each == table else space.plain(each, 1) for each in TABLES])
    space.require_refused(reply, TABLES, 0, f"a commit to table {table} that was dropped and created again")


def _moved(space: KitNamespace, table: str) -> None:
    old = space.load(table)
    moved = space.commit([space.guarded(old, 0)])
    if not moved.ok:
        raise Violated(f"a commit of one table answers {moved}")
    reply = space.commit([space.guarded(old, 1) if each == table else space.plain(each, 1) for each in TABLES])
    space.require_refused(reply, TABLES, 0, f"a commit on an old schema of table {table}")


def _old_snapshot(space: KitNamespace, table: str) -> None:
    """Build two appends on the same snapshot: the second is late."""
    base = space.load(table)
    first, late = append(space, base, 0), append(space, base, 1)
    done = space.commit([first])
    if not done.ok:
        raise Violated(f"an append to {table} answers {done}")
    reply = space.commit([late if each == table else space.plain(each, 1) for each in TABLES])
    space.require_refused(reply, TABLES, 0, f"an append on an old snapshot of table {table}")


def create_with_change(space: KitNamespace) -> str:
    """A commit that creates a table and changes another does both or none, also when two clients create one name."""
    space.create("x", "y")
    _create_and_change(space)
    wrong = space.plain("x", 2, {"type": "assert-current-schema-id", "current-schema-id": 4711})
    for order in (1, -1):
        reply = space.commit([space.stage("other", "client 0"), wrong][::order])
        space.require_refused(reply, ("x",), 1, "a create next to a change whose requirement fails")
        if space.exists("other"):
            raise Violated(f"a create next to a failing change answers {reply}, and the table is there")
        reply = space.commit([space.stage("new_again", "client 0"), _taken(space)][::order])
        space.require_refused(reply, ("x",), 1, "a create of a name that is taken")
        if space.exists("new_again"):
            raise Violated(f"a create next to one of a taken name answers {reply}, and the table is there")
    for number in range(ROUNDS):
        _create_at_once(space, f"race_{number}")
    return f"both or none; {ROUNDS} races of two clients for one name have one winner each, whole"


def _taken(space: KitNamespace) -> Json:
    """Return a create of a table that has been created since it was staged."""
    return space.change("new", [{"type": "assert-create"}], [{"action": "set-properties", "updates": {OWNER: "late"}}])


def _create_and_change(space: KitNamespace) -> None:
    reply = space.commit([space.stage("new", "client 0"), space.plain("x", 1)])
    there, n = space.exists("new"), space.load("x").n
    if there != (n == 1):
        raise Violated(
            f"a create and a change answer {reply}; the table {'is' if there else 'is not'} there, x has {n}"
        )
    if reply.refused and not there:
        raise NotSupported(f"a create in a commit of several tables answers {reply}, and leaves nothing")
    if not reply.ok or not there:
        raise Violated(f"a create and a change answer {reply}; the table {'is' if there else 'is not'} there")


def _create_at_once(space: KitNamespace, name: str) -> None:
    own, before = ("x", "y"), space.counters(("x", "y"))
    commits = [
        [space.stage(name, f"client {number}"), space.plain(table, before[table] + 1)]
        for number, table in enumerate(own)
    ]
    replies = at_once([partial(space.commit, changes) for changes in commits])
    _require_one_winner(space, (name,), replies, 1)
    for number, (table, reply) in enumerate(zip(own, replies, strict=True)):
        won = space.load(name).properties.get(OWNER) == f"client {number}"
        if space.load(table).n != before[table] + won:
            what = "won" if won else "lost"
            raise Violated(
                f"client {number} {what} the name (answer {reply}), and its change of {table} says otherwise"
            )


CASES: Sequence[Callable[[KitNamespace], str]] = (same_base, opposite_orders, zombie_commit, create_with_change)
