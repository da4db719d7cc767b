"""`txsaga branch`: branches that are not finished, or were decided outside of txsaga."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened, reading
from txsaga.cli.options import Limit, OptionalId, Options, Reason, options_of, os_user, span_of
from txsaga.cli.printing import document, listing, say, table
from txsaga.core import exits
from txsaga.core.arguments import read_number
from txsaga.core.identity import number_of
from txsaga.errors import UnknownProducerGroup
from txsaga.flows.branch import HEURISTIC, OPEN, BranchState
from txsaga.inspect.documents import branch_document

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.flows.by_hand import Forgotten
    from txsaga.flows.recovery import Recovery


FOUND = {  # what the operator has to look at
    BranchState.HEURISTIC_ROLLED_BACK: "branch {gid} was rolled back in {resource!r}: apply its changes there by hand",
    BranchState.HEURISTIC_COMMITTED: "branch {gid} was committed in {resource!r}: undo its changes there by hand",
    BranchState.HEURISTIC_MIXED: "branch {gid} was partly committed in {resource!r}: check which changes are there",
    BranchState.HEURISTIC_HAZARD: "the outcome of branch {gid} in {resource!r} is unknown: check it there",
}


PATIENCE = 60.0
"""Seconds to wait for a slow resource."""
PAUSE = 1.0
"""Seconds between two rounds of a command that waits."""
LONGEST = 40
"""Letters of a branch's number and attempt."""
COLUMNS = ("branch", "resource", "state", "since", "why")
app = typer.Typer(help="List branches, finish them, and acknowledge heuristic outcomes.")
Resource = Annotated[str | None, typer.Option(help="Only branches in this resource.")]
After = Annotated[str | None, typer.Option(metavar="BRANCH", help="Start after this branch (as printed).")]


@app.command()
def recover(
    context: typer.Context,
    wait: Annotated[
        timedelta | None, typer.Option(parser=span_of, metavar="TIME", help="Retry for up to this long.")
    ] = None,
) -> None:
    """Finish prepared branches now, in the resources set with TXSAGA_RESOURCE_…. Exits with 6 if any are left."""
    from txsaga.flows.recovery import Recovery

    options, until = options_of(context), time.monotonic() + (wait.total_seconds() if wait else 0)
    with opened(options) as broker:
        recovery = Recovery(broker.kernel, patience=PATIENCE, fresh=timedelta(0))
        recovery.run_once()
        while any((waiting := _waiting(broker, recovery)).values()) and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE))
            recovery.run_once()
    _show_told(options, recovery, waiting)
    if recovery.orphans or any(found.why for name, found in recovery.seen.items() if name in waiting):
        raise typer.Exit(exits.UNAVAILABLE)


@app.command("list")
def list_branches(
    context: typer.Context,
    state: Annotated[list[BranchState] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    transaction: Annotated[str | None, typer.Option("--tx", metavar="ID", help="Only of this transaction.")] = None,
    resource: Resource = None,
    limit: Limit = 50,
    after: After = None,
    held: Annotated[bool, typer.Option("--held", help="Ask the resources what they hold.")] = False,
    group: Annotated[str | None, typer.Option(help="With --held: only branches of this producer group.")] = None,
) -> None:
    """List unfinished branches, oldest first. With --tx, list all branches of the transaction."""
    options = options_of(context)
    place = _place(after, "--after") if after else (0, 0, 0)
    if group is not None and not held:
        raise typer.BadParameter("it needs --held", param_hint="--group")
    if held:
        with opened(options) as broker:
            _show_held(options, broker, group, resource)
        return
    states = set(state or (BranchState if transaction else OPEN | HEURISTIC))
    with reading(options) as store:
        if transaction is None:
            found = store.work.branches_in(states, resource=resource, after=place, limit=limit)
        else:
            named = store.work.branches(number_of(transaction, store.registry.identity))
            wanted = [each for each in named if each.state in states and resource in (None, each.resource)]
            found = [each for each in wanted if each[:3] > place][:limit]
    _show(options, [branch_document(store.registry.identity, each) for each in found])


@app.command()
def heuristics(context: typer.Context, resource: Resource = None, limit: Limit = 50, after: After = None) -> None:
    """List branches decided outside txsaga or with an unknown outcome, and what to check for each."""
    options = options_of(context)
    place = _place(after, "--after") if after else (0, 0, 0)
    with reading(options) as store:
        found = store.work.branches_in(HEURISTIC, resource=resource, after=place, limit=limit)
        documents = [branch_document(store.registry.identity, each) for each in found]
    rows = [said | {"look": FOUND[each.state].format_map(said)} for each, said in zip(found, documents, strict=True)]
    _show(options, rows)
    if rows and not options.json:
        for row in rows:
            say(f"{row['branch']}: {row['look']}")
        say("then run `txsaga branch forget ID BRANCH --reason WHY`; `txsaga tx show ID` shows the decision")


@app.command()
def forget(
    context: typer.Context,
    reason: Reason,
    id: OptionalId = None,
    branch: Annotated[str | None, typer.Argument(metavar="[BRANCH]", help="Number of a branch: 2, or 2.1.")] = None,
    all: Annotated[bool, typer.Option("--all", help="All heuristic outcomes in the store.")] = False,
) -> None:
    """Acknowledge heuristic outcomes after you have fixed them by hand. Prepared branches are refused."""
    from txsaga.flows.by_hand import BranchesByHand

    if all == (id is not None):
        raise typer.BadParameter("name one transaction, or use --all", param_hint="ID")
    options = options_of(context)
    number, attempt = _branch(branch)
    with opened(options) as broker:
        hand, who = BranchesByHand(broker.kernel), os_user()
        if id is None:
            done = list(hand.forget_all(who=who, why=reason))
        else:
            txid = number_of(id, broker.identity)
            done = list(hand.forget(txid, number, attempt, who=who, why=reason))
        found = [_forgotten(broker, each) for each in done]
    if options.json:
        document({"forgotten": found})
        return
    say(f"{len(found)} forgotten")
    if any(each["left"] for each in found):
        table(("branch", "its row stays in its resource"), [(each["branch"], each["left"]) for each in found])


def _show(options: Options, rows: Sequence[Mapping[str, object]]) -> None:
    listing(
        options, rows, (*COLUMNS, "name in its resource"), [[row[name] for name in (*COLUMNS, "gid")] for row in rows]
    )


def _waiting(broker: Broker, recovery: Recovery) -> Counter[str]:
    waiting = Counter(recovery.orphans)
    waiting.update({each.resource: each.waiting for each in broker.kernel.store.overview.branches()})
    return waiting


def _show_told(options: Options, recovery: Recovery, waiting: Counter[str]) -> None:
    seen = [(name, recovery.seen[name]) for name in sorted(recovery.seen.keys() & waiting.keys())]
    documents = [{"resource": name, **found.document(), "waiting": waiting[name]} for name, found in seen]
    rows = [(name, s.told, waiting[name], len(s.earlier), s.why or None) for name, s in seen]
    listing(options, documents, ("resource", "told", "waiting", "of an earlier incarnation", "why"), rows)


def _show_held(options: Options, broker: Broker, group: str | None, resource: str | None) -> None:
    from txsaga.flows.search import Search

    known = None if group is None else broker.kernel.store.registry.find_group(group)
    if group is not None and known is None:
        raise UnknownProducerGroup(group)
    pages = Search(broker.kernel, known).pages()
    found = [each for page in pages for each in page if resource in (None, each.resource)]
    columns = ("resource", "name in its resource", "transaction", "state")
    listing(options, [each._asdict() for each in found], columns, found)


def _forgotten(broker: Broker, done: Forgotten) -> dict[str, object]:
    was = branch_document(broker.identity, done.branch)
    return {name: was[name] for name in ("branch", "resource", "state")} | {"left": done.left or None}


def _place(text: str, hint: str) -> tuple[int, int, int]:
    numbers = [number for part in text.split(".") if (number := read_number(part)) is not None]
    if len(numbers) != 3 or text.count(".") != 2:
        raise typer.BadParameter(f"{text!r} is not a branch; write it as it was printed", param_hint=hint)
    txid, number, attempt = numbers
    return txid, number, attempt


def _branch(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    number, _, attempt = text.partition(".")
    found = read_number(number), read_number(attempt)
    if len(text) > LONGEST or found[0] is None or (attempt and found[1] is None):
        raise typer.BadParameter(f"{text!r} is not a branch; write 2, or 2.1 with its attempt", param_hint="BRANCH")
    return found
