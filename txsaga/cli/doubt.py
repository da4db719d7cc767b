"""`txsaga doubt`: what check-back has on its list, and what an operator does about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli import tx
from txsaga.cli.home import opened, reading
from txsaga.cli.options import MOST, options_of, whole
from txsaga.cli.printing import document, fields, listing, result, tables
from txsaga.errors import DecidedOtherwise, NotParked, TransactionError, UnknownProducerGroup, UnknownTransaction

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.inspect.overview import DoubtView
    from txsaga.store.store import Store

app = typer.Typer(help="List, resume, commit and roll back pending transactions.")
app.command()(tx.commit)
app.command()(tx.rollback)
Group = Annotated[str | None, typer.Option(help="Only transactions of this producer group.")]


@app.command("list")
def list_doubts(
    context: typer.Context,
    parked: Annotated[bool, typer.Option("--parked", help="Only parked transactions (they need attention).")] = False,
    group: Group = None,
    limit: Annotated[int, typer.Option(parser=whole(1, MOST), metavar="NUMBER", help="Maximum number of rows.")] = 50,
) -> None:
    """List pending transactions (those that check-back has to resolve), oldest first."""
    options = options_of(context)
    with reading(options) as store:
        _require(store, group)
        found = store.overview.doubts(limit=limit, parked=parked, group=group)
    columns = ("number", "state", "group", "key", "checks", "next check", "age", "last remark")
    listing(options, map(doubt_document, found), columns, map(doubt_row, found))


@app.command()
def show(context: typer.Context, id: tx.Id) -> None:
    """Show one pending transaction: why it is undecided, the result of each check, and its half messages."""
    options = options_of(context)
    with reading(options) as store:
        doubt = _doubt(store, tx.number_of(id, store.registry.identity))
        halves = [tx.half_document(half) for half in store.halves.views(doubt.txid)]
    if options.json:
        document({**doubt_document(doubt), "halves": halves})
        return
    fields({name: value for name, value in doubt_document(doubt).items() if name != "remarks"})
    tables([remark._asdict() for remark in doubt.checks.remarks], halves)


@app.command()
def resume(
    context: typer.Context,
    reason: tx.Reason,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Id or number of a transaction.")] = None,
    group: Group = None,
    all: Annotated[bool, typer.Option("--all", help="All parked transactions of the group.")] = False,
) -> None:
    """Check a parked transaction again, starting from its first check. This decides nothing."""
    if all == (id is not None) or all != (group is not None):
        raise typer.BadParameter("name one transaction, or use --group with --all", param_hint="ID")
    options = options_of(context)
    with opened(options) as broker:
        if group is None:
            assert id is not None
            resumed = [tx.number_of(id, broker.identity)]
            _resume(broker, resumed[0], reason)
        else:
            resumed = _resume_all(broker, group, reason)
    told = f"transaction {resumed[0]} is checked again" if group is None else f"{len(resumed)} resumed"
    result(options, {"resumed": resumed}, told)


def doubt_row(doubt: DoubtView) -> tuple[object, ...]:
    """Write a doubt for people."""
    checks = doubt.checks
    state = doubt.progress if doubt.member is None else f"{doubt.progress} ({doubt.member})"
    last = f"{checks.remarks[-1].answer}: {checks.remarks[-1].why}" if checks.remarks else None
    due = checks.due if checks.parked is None else None
    return doubt.txid, state, doubt.group, doubt.key, checks.asked, due, doubt.age, checks.parked or last


def doubt_document(doubt: DoubtView) -> dict[str, object]:
    """Write a doubt for programs."""
    checks = doubt.checks
    return {
        "txid": doubt.txid,
        "id": doubt.id,
        "state": doubt.progress,
        "member": doubt.member,
        "group": doubt.group,
        "key": doubt.key,
        "checks": checks.asked,
        "next_check": checks.due if checks.parked is None else None,
        "age_seconds": doubt.age,
        "why_parked": checks.parked,
        "remarks": [remark._asdict() for remark in checks.remarks],
    }


def _doubt(store: Store, txid: int) -> DoubtView:
    for doubt in store.overview.doubts(limit=1, txid=txid):
        return doubt
    view = store.registry.transaction(txid)
    if view is None:
        raise UnknownTransaction(f"transaction {txid} is not in this store")
    state = "not pending yet" if view.decision is None else f"not pending: the decision is {view.decision.name}"
    raise TransactionError(f"transaction {txid} is {state}; see `txsaga tx show {txid}`")


def _require(store: Store, group: str | None) -> None:
    if group is not None and store.registry.find_group(group) is None:
        raise UnknownProducerGroup(group)


def _resume(broker: Broker, txid: int, reason: str) -> None:
    from txsaga.checkback.by_hand import ByHand

    ByHand(broker.kernel).resume(txid, who=tx.os_user(), why=reason)


def _resume_all(broker: Broker, group: str, reason: str) -> list[int]:
    """Resume what a group has parked; what is settled or resumed elsewhere in the meantime is skipped."""
    _require(broker.kernel.store, group)
    resumed = []
    for doubt in broker.kernel.store.overview.doubts(limit=MOST, parked=True, group=group):
        try:
            _resume(broker, doubt.txid, reason)
        except (DecidedOtherwise, NotParked):
            continue
        resumed.append(doubt.txid)
    return resumed
