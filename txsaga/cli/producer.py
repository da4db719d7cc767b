"""`txsaga producer`: producer groups, who answers for them, and their options for checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from txsaga.cli.check_options import CHECKS, Setting, of_profile
from txsaga.cli.home import opened, reading
from txsaga.cli.options import options_of, takes
from txsaga.cli.printing import document, fields, listing
from txsaga.core.records import ProducerKind
from txsaga.errors import UnknownProducerGroup
from txsaga.inspect.documents import producers_document
from txsaga.inspect.overview import Backlog

if TYPE_CHECKING:
    from txsaga.core.records import Group
    from txsaga.store.store import Store

app = typer.Typer(help="List, show and alter producer groups.")
Name = Annotated[str, typer.Argument(help="Name of the producer group.")]
COLUMNS = ("producers", "undecided", "oldest", "parked", "asked", "members")


@app.command("list")
def list_groups(context: typer.Context) -> None:
    """List producer groups, their undecided transactions, and how many members answer checks."""
    options = options_of(context)
    with reading(options) as store:
        groups, backlogs = store.registry.producer_groups(), _backlogs(store)
    documents = [producers_document(group, backlogs.get(group.name)) for group in groups]
    rows = [(*_row_or_nothing(group, backlogs), _told(group)) for group in groups]
    listing(options, documents, (*COLUMNS, "checks"), rows)


@app.command()
def show(context: typer.Context, name: Name) -> None:
    """Show one group: live members, undecided transactions, results of checks, and check settings."""
    options = options_of(context)
    with reading(options) as store:
        if (group := store.registry.find_group(name)) is None:
            raise UnknownProducerGroup(name)
        _show(store, group, as_json=options.json)


@app.command()
@takes(CHECKS)
def alter(
    context: typer.Context,
    name: Name,
    kind: Annotated[
        ProducerKind | None, typer.Option(help="Which producers it takes; only if nothing of it is undecided.")
    ] = None,
    reset: Annotated[list[Setting] | None, typer.Option(help="Use the engine's setting again.")] = None,
    **checks: object,
) -> None:
    """Override the engine's check-back settings for one producer group, from the next round on; or change its kind."""
    if both := [setting for setting in reset or () if setting.replace("-", "_") in checks]:
        raise typer.BadParameter(f"{both[0]} can't be set and reset at once", param_hint="--reset")
    if kind is not None and (checks or reset):
        raise typer.BadParameter("give it alone, and the settings in another call", param_hint="--kind")
    options = options_of(context)
    with opened(options) as broker:
        if kind is not None:
            broker.set_kind(name, kind)
        group = broker.set_checks(name, **of_profile(checks, reset or ()))
        _show(broker.kernel.store, group, as_json=options.json)


def backlog_row(backlog: Backlog) -> tuple[object, ...]:
    """Write the backlog of a group for people."""
    return backlog.group, backlog.undecided, backlog.oldest, backlog.parked, backlog.asked, backlog.members


def _show(store: Store, group: Group, *, as_json: bool) -> None:
    from txsaga.checkback.heartbeat import checkers_of

    kind = checkers_of(group.id)
    names = list(store.leases.alive([kind])[kind])
    shown = {**producers_document(group, _backlogs(store).get(group.name)), "members": names}
    if as_json:
        document(shown)
        return
    answers, checks = shown.pop("answers", {}), shown.pop("checks")
    assert isinstance(answers, dict) and isinstance(checks, dict)
    told = {setting.value: checks.get(setting.field, "as the engine") for setting in Setting}
    fields({**shown, "members": ", ".join(names) or None, **answers, **told})


def _backlogs(store: Store) -> Mapping[str, Backlog]:
    return {backlog.group: backlog for backlog in store.overview.backlogs()}


def _row_or_nothing(group: Group, backlogs: Mapping[str, Backlog]) -> tuple[object, ...]:
    known = backlogs.get(group.name)
    return (group.name, *[None] * (len(COLUMNS) - 1)) if known is None else backlog_row(known)


def _told(group: Group) -> str | None:
    told = [f"{setting}={group.checks[setting.field]}" for setting in Setting if setting.field in group.checks]
    return " ".join(told) or None
