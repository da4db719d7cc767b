"""Check a store: rights, room for transaction numbers, and whether its background work is done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Connection, text

from txsaga.checkback.profile import PROFILES, Exhausted
from txsaga.errors import LakeMissing
from txsaga.store import granting, schema, sql_files
from txsaga.store.doctor_rows import ROWS
from txsaga.store.finding import Finding, error, ok, warning
from txsaga.store.functions import functions as written_for
from txsaga.store.partitions import bounds
from txsaga.store.right import SIGN, Right
from txsaga.store.rights import needed
from txsaga.store.store import Store

STALE = timedelta(seconds=10)
"""If transactions wait and the last tick is older than this, no dispatcher runs."""
UNLED = timedelta(minutes=1)
"""If work is pending for longer, no process leads a round, or no member answers."""
CHECK_BACK = "check-back"
"""The role whose rounds are checked."""
UNTOLD = timedelta(minutes=2)
"""If a decided branch waits for longer, its resource is unavailable, or no process recovers."""
OLD = timedelta(hours=1)
"""Age from which an undecided transaction is reported."""

SQL = sql_files.read("store/sql/doctor.sql")


def rights(connection: Connection, namespace: str) -> Finding:
    """Report the rights of this login, and privileges that they lack."""
    login, user = granting.login(connection, namespace), _user(connection)
    if login.owner:
        return _odd(connection, namespace) or ok("rights", f"{user} owns namespace {namespace} and may do everything")
    lacking = [right for right in Right if right not in login.rights]
    remedy = f"`txsaga db grant {'|'.join(lacking)} --to {user}`, as the owner" if lacking else None
    if not login.rights:
        return error("rights", f"{user} has no right in namespace {namespace}", remedy)
    s = f'"{namespace}"'
    functions = [function.name for function in written_for(s)]
    needs = [need for right in sorted(login.rights) for need in needed(right, s, functions)]
    values = {"names": [name for name, _ in needs], "words": [word for _, word in needs]}
    missing = connection.execute(text(SQL["missing"]), values).all()
    if missing:
        name, word = missing[0]
        told = f"{user} may not {word} {name}" + (f", {len(missing) - 1} more" if missing[1:] else "")
        return error("rights", told, "run `txsaga db migrate` as the owner: it grants anew what each right needs")
    return ok("rights", f"{user} has the rights {', '.join(sorted(login.rights))}", remedy)


def _odd(connection: Connection, namespace: str) -> Finding | None:
    """Report what the owner should know about the rights of other roles."""
    s = f'"{namespace}"'
    if groups := connection.execute(text(SQL["nobodys"].format(s=s))).scalars().all():
        told = f"producer groups of roles that are gone: {', '.join(groups)}"
        return warning(
            "rights", told, "`txsaga db grant producer --to ROLE --group GROUP` before the name is taken again"
        )
    if roles := connection.execute(text(SQL["blanket"]), {"sign": f"{s}.{SIGN}"}).scalars().all():
        told = f"{', '.join(roles)} was granted all tables at once, also what no right needs"
        return warning("rights", told, f"REVOKE ALL ON ALL TABLES IN SCHEMA {s} FROM it, and grant it a right")
    return None


def _user(connection: Connection) -> str:
    return str(connection.execute(text(SQL["who"])).scalar_one())


def room(connection: Connection, namespace: str) -> Finding:
    """Report how many transaction numbers are left in the last partition."""
    last = connection.execute(text(f'SELECT last_value FROM "{namespace}".tx_seq')).scalar_one()
    left = (
        min((have[-1][1] if (have := bounds(connection, namespace, table)) else 0) for table in ("half", "op")) - last
    )
    told, remedy = f"there is room for {max(left - 1, 0):,} transactions", "run `txsaga engine`, it adds partitions"
    if left <= 1:
        return error("partitions", told, remedy)
    return ok("partitions", told) if left > schema.SPAN // 2 else warning("partitions", told, remedy)


def dispatcher(store: Store) -> Finding:
    """Check whether a dispatcher assigns offsets."""
    found = store.overview.dispatch()
    told = f"the last tick is {found.age.total_seconds():.0f} s old, {found.waiting} transactions wait for the next"
    if found.waiting and found.age > STALE:
        return error("dispatcher", told, "run `txsaga engine`")
    if found.blocked:
        told += f", and it leaves out {', '.join(found.blocked)}"
        return warning("dispatcher", told, "mend what `log` says; the next tick of `txsaga engine` dispatches the rest")
    return ok("dispatcher", told)


def undecided(store: Store) -> Finding:
    """Report parked transactions, and old undecided ones."""
    found = store.overview.undecided()
    if found.parked:
        told = f"{found.parked} transactions are parked: out of checks"
        return warning("undecided", told, "see `txsaga doubt list --parked`, then `txsaga doubt resume` or `commit`")
    if found.oldest is not None and found.oldest > OLD:
        told = f"{found.count} transactions are undecided, the oldest for {found.oldest.total_seconds() / 3600:.1f} h"
        return warning("undecided", told, "give the engine their resources, or let their producers run")
    return ok("undecided", f"{found.count} transactions are under way")


def lakeless(store: Store) -> Finding:
    """Report transactions that check-back could not decide because it can't publish tables."""
    remarks = {doubt.txid: doubt.checks.remarks for doubt in store.overview.doubts(limit=1000)}
    if waiting := [txid for txid, said in remarks.items() if any(LakeMissing.INSTALL in each.why for each in said)]:
        told = f"{len(waiting)} transactions wait for an engine with the extra `lake`, the first is {waiting[0]}"
        return warning("tables", told, f"`{LakeMissing.INSTALL}` where `txsaga engine` runs, and start it again")
    return ok("tables", "no transaction waits for an engine that publishes tables")


def rounds(store: Store) -> Finding:
    """Check whether a process leads rounds of check-back."""
    last = store.overview.last_round(CHECK_BACK)
    told = "there was no round of check-back yet"
    if last is not None:
        told = f"the last round of check-back ended {last.ago.total_seconds():.0f} s ago, led by {last.leader}"
    found = store.overview.undecided()  # a re-scan may be due as well: without undecided ones nothing waits for it
    late = found.count > found.parked and (last is None or last.ago > UNLED)
    if late and store.doubts.waiting(PROFILES["classic"].min_age):
        return warning("check-back", f"{told}, and there is something to do", "run `txsaga engine`")
    return ok("check-back", told)


def unanswered(store: Store) -> Finding:
    """Report producer groups with questions, or old transactions, but no member to answer."""
    alone = [
        each.group
        for each in store.overview.backlogs()
        if each.undecided > each.parked and not each.members and (each.asked or (each.oldest or UNLED) > UNLED)
    ]
    if alone:
        told = f"nobody answers for undecided transactions of {', '.join(alone)}"
        remedy = "start a program of the group, or give the engine its resources"
        return warning("producers", told, f"{remedy}; the log of one that runs names a checker that hangs")
    return ok("producers", "whoever has something undecided has a member that answers")


def guessing_groups(store: Store) -> Finding:
    """Report producer groups whose transactions are rolled back when checks find no answer."""
    guessing = [g.name for g in store.registry.producer_groups() if g.checks.get("on_exhausted") == Exhausted.ROLL_BACK]
    if guessing:
        told = f"out of checks is rolled back, though the work may be done, in {', '.join(guessing)}"
        return warning("out of checks", told, f"`txsaga producer alter {guessing[0]} --reset on-exhausted`")
    return ok("out of checks", "every group says that it is parked, or leaves it to the engine")


def careless_groups(store: Store) -> Finding:
    """Report groups that lose messages after the last attempt."""
    careless = [group.name for group in store.groups.all() if group.policy.loses]
    if careless:
        told = f"what fails to the end is lost in {', '.join(careless)}"
        return warning("groups", told, f"`txsaga group alter {careless[0]} --dead-letters`, or --backout TOPIC")
    return ok("groups", "no group loses what fails")


def dead_letters(store: Store) -> Finding:
    """Count the dead letters of each group."""
    dead = store.overview.dead_letters()
    if dead:
        told = f"{sum(dead.values())} messages are dead letters of {', '.join(dead)}"
        return warning("dead letters", told, "see `txsaga dlq list`, then `txsaga dlq replay` or `purge`")
    return ok("dead letters", "there are none")


def heuristics(store: Store) -> Finding:
    """Count branches settled manually against their decision."""
    if against := [f"{each.heuristics} in {each.resource}" for each in store.overview.branches() if each.heuristics]:
        told = f"branches stand against their decision: {', '.join(against)}"
        return error("heuristics", told, "see `txsaga heuristics`; mend what they broke, then `txsaga forget`")
    return ok("heuristics", "no branch stands against its decision")


def untold(store: Store) -> Finding:
    """Report resources with branches that stay unfinished after their decision."""
    late = [each for each in store.overview.branches() if (each.oldest or UNTOLD) > UNTOLD]
    if late:
        told = f"decided branches hold locks: {', '.join(f'{each.waiting} in {each.resource}' for each in late)}"
        return warning(
            "branches", told, "run `txsaga engine` where these resources can be reached, or `txsaga recover`"
        )
    return ok("branches", "resources know what is decided")


def holding(store: Store) -> Finding:
    """Report resources in which flows hold locks for longer than their budget."""
    if late := [f"{each.over} in {each.resource}" for each in store.flows.held() if each.over]:
        told = f"steps of flows hold locks for longer than their budget: {', '.join(late)}"
        return warning("flows", told, 'end the flow (`txsaga tx show` tells which step), or hold with "journal"')
    return ok("flows", "no flow holds locks for longer than its budget")


PLACES: dict[str, Callable[..., Finding]] = {"rights": rights, "partitions": room}
STATE: dict[str, Callable[[Store], Finding]] = {
    "dispatcher": dispatcher,
    **ROWS,
    "check-back": rounds,
    "undecided": undecided,
    "producers": unanswered,
    "tables": lakeless,
    "out of checks": guessing_groups,
    "groups": careless_groups,
    "dead letters": dead_letters,
    "branches": untold,
    "heuristics": heuristics,
    "flows": holding,
}
