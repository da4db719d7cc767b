"""`txsaga saga`: look at sagas that are not over, and continue those that are stalled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txsaga.cli.home import opened, reading
from txsaga.cli.options import MOST, Id, Limit, Options, Reason, options_of, os_user, whole
from txsaga.cli.printing import document, fields, listing, result, say, table
from txsaga.core.identity import LAST, number_of
from txsaga.errors import UnknownTransaction
from txsaga.inspect.documents import saga_document, step_document

if TYPE_CHECKING:
    from txsaga.flows.requests import SagaView
    from txsaga.flows.step import Step

app = typer.Typer(help="List and show unfinished sagas, and continue stalled ones.")
STEP: Any = typer.Option(
    "--step", parser=whole(1, LAST), metavar="NUMBER", help="Number of the step, as `saga show` prints it."
)


@app.command("list")
def list_sagas(
    context: typer.Context,
    stalled: Annotated[bool, typer.Option("--stalled", help="Only sagas that wait for an operator.")] = False,
    limit: Limit = 50,
) -> None:
    """List unfinished sagas, oldest first."""
    options = options_of(context)
    with reading(options) as store:
        views = store.work.sagas(limit=MOST if stalled else limit)
    found = [view for view in views if view.stalled or not stalled][:limit]
    columns = ("number", "group", "key", "decision", "left", "of", "stalled", "until", "why")
    listing(options, map(saga_document, found), columns, map(_row, found))


@app.command()
def show(context: typer.Context, id: Id) -> None:
    """Show a saga: its state, and its steps in the order in which they started."""
    options = options_of(context)
    with reading(options) as store:
        txid = number_of(id, store.registry.identity)
        steps = store.work.steps(txid)
        views = store.work.sagas(txid=txid)
    if not steps:
        raise UnknownTransaction(f"transaction {txid} has no steps; `txsaga saga list` lists sagas")
    if options.json:
        over: dict[str, object] = {"txid": txid, "over": not views}
        document(over | (saga_document(views[0]) if views else {}) | {"steps": [step_document(s) for s in steps]})
        return
    fields(saga_document(views[0]) if views else {"txid": txid, "over": True})
    say()
    columns = ("step", "name", "state", "left", "resource", "tries", "since", "error")
    rows = [(s.number, s.name, s.state, s.left, s.resource, s.tries, s.at, s.error or None) for s in steps]
    table(columns, rows)


@app.command()
def resume(context: typer.Context, id: Id, reason: Reason, step: Annotated[int | None, STEP] = None) -> None:
    """Retry steps that ran out of retries. The engine retries them at once."""
    from txsaga.flows.by_hand import SagasByHand

    options = options_of(context)
    with opened(options) as broker:
        txid = number_of(id, broker.identity)
        moved = SagasByHand(broker.kernel).resume(txid, who=os_user(), why=reason, number=step)
    _said(options, txid, moved, "resumed")


@app.command()
def skip(context: typer.Context, id: Id, reason: Reason, step: Annotated[int, STEP]) -> None:
    """Skip a step that you have handled by hand. Its saga continues."""
    from txsaga.flows.by_hand import SagasByHand

    options = options_of(context)
    with opened(options) as broker:
        txid = number_of(id, broker.identity)
        moved = SagasByHand(broker.kernel).skip(txid, step, who=os_user(), why=reason)
    _said(options, txid, [moved], "skipped")


def _row(view: SagaView) -> tuple[object, ...]:
    decision = None if view.decision is None else view.decision.name
    left = view.waiting, view.steps, view.stalled, view.until, view.why or None
    return view.txid, view.group, view.key, decision, *left


def _said(options: Options, txid: int, moved: Sequence[Step], what: str) -> None:
    numbers = [each.number for each in moved]
    told = f"saga {txid}: step {', '.join(map(str, numbers))} {what}"
    result(options, {"txid": txid, "steps": numbers, "done": what}, told)
