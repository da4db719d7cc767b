"""
What gates judge and how they answer: the rows, the ballot with its votes, and the protocol of a gate.

Votes are cast in the same commit that records the checked rows. The ballot is opened and voted in at once, so it never
stays open: if this process dies before that commit, nothing is recorded. A no is raised where the rows are staged, and
it is final: a caller that ignores the error can't commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from txsaga.errors import ConfigError, NotCarried
from txsaga.flows.ballot import Ballot, CastVote, Polled, Result

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata

    from txsaga.messages.ledger_store import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Rows to be judged."""

    about: str
    """The name of the rows: a table, a topic or any other."""
    rows: object = None
    """An Arrow table or mappings; None if the rows are in files."""
    files: tuple[DataFile, ...] = ()
    """The files of a table."""
    table: TableMetadata | None = None
    """The table of the files: its columns are found by their ids, whatever a writer named them."""
    access: Mapping[str, str] = field(default_factory=dict)
    """The storage properties for reading the files."""
    count: int | None = None
    """The number of rows; None if unknown."""
    published: int | None = None
    """The number of published rows that these replace; None if there is nothing to compare with."""


def together(about: str, subjects: Sequence[Subject]) -> Subject:
    """Combine subjects with the same columns into one."""
    if any(each.rows is not None for each in subjects):
        if len(subjects) > 1:
            raise ConfigError(
                f"{about} was changed on a branch with separate delete files, and rows were added to it as well; give "
                "each its own gate: branch(spark, gate=…), append(…, gate=…)"
            )
        return replace(subjects[0], about=about)
    return replace(
        subjects[0] if subjects else Subject(about=about),
        about=about,
        files=tuple(file for each in subjects for file in each.files),
        count=sum(each.count or 0 for each in subjects),
        published=next((each.published for each in subjects if each.published is not None), None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Polled):
    """A ballot of gates, with every vote in it."""

    @property
    def reason(self) -> str:
        """The reasons of the voters who did not vote yes."""
        return "; ".join(f"{cast.voter}: {cast.evidence.get('why', 'no')}" for cast in self.casts if not cast.yes)


class Gate(Protocol):
    """One gate, or several that vote together."""

    def warm(self) -> None:
        """Start slow parts, in the background while rows are staged; raise `UnknownSuite` before any are."""

    def ballot(self, name: str) -> Ballot:
        """Return the ballot that the gate votes in."""

    def judge(self, subject: Subject) -> Sequence[CastVote]:
        """Check rows, and return a vote for each voter of the ballot."""


def start(gate: Gate) -> None:
    """Start the slow parts of a gate, or refuse what is none."""
    if not all(hasattr(gate, name) for name in ("warm", "ballot", "judge")):
        raise ConfigError(f"{type(gate).__name__} is not a gate; make one with txsaga.gate.expect(suite)")
    gate.warm()


def judged(gate: Gate, name: str, subject: Subject) -> Judged:
    """Let a gate judge rows."""
    return Judged(ballot=gate.ballot(name), casts=tuple(gate.judge(subject)))


def vote(ledger: Ledger, txid: int, found: Judged) -> None:
    """Open the ballot and cast its votes; the transaction's record is locked."""
    ledger.call(txid, found.ballot)
    for cast in found.casts:
        ledger.cast(txid, found.ballot.name, cast)


def require_passed(found: Judged, txid: int) -> None:
    """Raise `NotCarried` if the gate voted no."""
    if found.result is not Result.CARRIED:
        raise NotCarried(found.ballot.name, f"{found.reason}; see `txsaga tx ballots {txid}`")
