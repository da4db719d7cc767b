"""`txsaga tx pending` and `txsaga tx resume`: transactions that check-back has to settle, and those that it parked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.home import opened, reading
from txsaga.cli.operators import OptionalId, Reason, number_of, os_user
from txsaga.cli.options import MOST, options_of, whole
from txsaga.cli.printing import listing, result
from txsaga.errors import DecidedOtherwise, NotParked, UnknownProducerGroup

if TYPE_CHECKING:
    from txsaga.broker import Broker
    from txsaga.inspect.overview import DoubtView
    from txsaga.store.store import Store

Group = Annotated[str | None, typer.Option(help="Only transactions of this producer group.")]


def list_pending(
    context: typer.Context,
    parked: Annotated[bool, typer.Option("--parked", help="Only parked transactions (they need attention).")] = False,
    group: Group = None,
    limit: Annotated[int, typer.Option(parser=whole(1, MOST), metavar="NUMBER", help="Maximum number of rows.")] = 50,
) -> None:
    """List transactions that check-back has to settle, oldest first: their checks, and why they wait."""
    options = options_of(context)
    with reading(options) as store:
        require_group(store, group)
        found = store.overview.doubts(limit=limit, parked=parked, group=group)
    columns = ("number", "state", "group", "key", "checks", "next check", "age", "last remark")
    listing(options, map(doubt_document, found), columns, map(doubt_row, found))


def resume(
    context: typer.Context,
    reason: Reason,
    id: OptionalId = None,
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
            resumed = [number_of(id, broker.identity)]
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


def require_group(store: Store, group: str | None) -> None:
    """Refuse the name of a producer group that does not exist."""
    if group is not None and store.registry.find_group(group) is None:
        raise UnknownProducerGroup(group)


def _resume(broker: Broker, txid: int, reason: str) -> None:
    from txsaga.checkback.by_hand import ByHand

    ByHand(broker.kernel).resume(txid, who=os_user(), why=reason)


def _resume_all(broker: Broker, group: str, reason: str) -> list[int]:
    """Resume what a group has parked; what is settled or resumed elsewhere in the meantime is skipped."""
    require_group(broker.kernel.store, group)
    resumed = []
    for doubt in broker.kernel.store.overview.doubts(limit=MOST, parked=True, group=group):
        try:
            _resume(broker, doubt.txid, reason)
        except (DecidedOtherwise, NotParked):
            continue
        resumed.append(doubt.txid)
    return resumed
