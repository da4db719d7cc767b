"""
What can still be undone of a transaction: what ROLLBACK would take away, each thing by itself.

Nothing of it exists before the first step, each step adds some, and the decision ends it: what is committed can't be
undone here, and what is rolled back is undone once its resource was told. It only tells; nothing decides by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from txsaga.model.branch import BranchId
from txsaga.model.decision import Decision
from txsaga.model.trace import Trace

HOME = "home"


class Undo(NamedTuple):
    """One thing that can still be undone: where it lies, what undoes it, and how it is called there."""

    number: int
    where: str
    what: str
    by: str
    reference: str


def undo_of(trace: Trace, transaction: str) -> list[Undo]:
    """Return what can be undone of a transaction, in the order in which it came."""
    if trace.decision is Decision.COMMIT:
        return []
    found = [*_branches(trace, transaction)]
    if trace.decision is None:
        found = [*_messages(trace), *_bound(trace), *found]
    return [Undo(number, *each) for number, each in enumerate(found, 1)]


Entry = tuple[str, str, str, str]


def _messages(trace: Trace) -> Iterator[Entry]:
    for sent in trace.sent:
        what = f"{sent.messages} message{'' if sent.messages == 1 else 's'} to {sent.place}, not visible yet"
        yield HOME, what, "they stay invisible", f"part {sent.part}, attempt {sent.attempt}"
    for slot, place in trace.kept:
        yield HOME, f"a place for a late body to {place}", "it stays empty", f"slot {slot}"


def _bound(trace: Trace) -> Iterator[Entry]:
    for group, member, place, first, last in trace.bound:
        yield HOME, f"offsets {first} to {last} of {place} for group {group}", "they come again", member


def _branches(trace: Trace, transaction: str) -> Iterator[Entry]:
    for branch in trace.branches:
        if branch.unfinished:
            id = BranchId(transaction, branch.number, branch.attempt)
            what = f"the work of {'unit' if branch.aux else 'branch'} {branch.number}"
            yield branch.resource, what, "the resource rolls it back", id.gid
