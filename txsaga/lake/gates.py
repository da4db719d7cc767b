"""
Votes of gates: cast in the commit that records what they have looked at.

The ballot is called and voted in at once, so it is never left open: if this process dies before that commit, nothing
was recorded either. A no is raised where the rows are staged, and it stands: whoever drops the error can't commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from txsaga.errors import ConfigError
from txsaga.flows.ballot import Ballot, CastVote, Polled


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Rows that are judged."""

    about: str
    """A table, a topic, or whatever the rows are called."""
    rows: object = None
    """An Arrow table, or mappings; None where they lie in files."""
    files: tuple[str, ...] = ()
    """Where Parquet files lie."""
    columns: tuple[str, ...] = ()
    """What the files have."""
    access: Mapping[str, str] = field(default_factory=dict)
    """How the files are reached."""
    count: int | None = None
    """How many rows there are; None where nobody has counted."""
    published: int | None = None
    """How many rows are published in the place of these; None where there is nothing to compare with."""


def together(about: str, subjects: Sequence[Subject]) -> Subject:
    """Return rows of the same columns that lie in several places as one."""
    if any(each.rows is not None for each in subjects):
        if len(subjects) > 1:
            raise ConfigError(
                f"{about} was changed on a branch that keeps deletes beside its files, and added to behind it; let "
                "each of them have its own gate: branch(spark, gate=…), append(…, gate=…)"
            )
        return replace(subjects[0], about=about)
    counts = [each.count or 0 for each in subjects]
    return Subject(
        about=about,
        files=tuple(file for each in subjects for file in each.files),
        columns=subjects[0].columns if subjects else (),
        access=subjects[0].access if subjects else {},
        count=sum(counts),
        published=next((each.published for each in subjects if each.published is not None), None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A ballot of gates, with every vote in it."""

    ballot: Ballot
    casts: tuple[CastVote, ...]

    @property
    def poll(self) -> Polled:
        """How it stands."""
        return Polled(ballot=self.ballot, casts=self.casts)

    @property
    def reason(self) -> str:
        """Say what was found by those who did not say yes."""
        return "; ".join(f"{cast.voter}: {cast.evidence.get('why', 'no')}" for cast in self.casts if not cast.yes)


class Gate(Protocol):
    """One gate, or some that vote together."""

    def warm(self) -> None:
        """Start what takes long to start, while rows are still being staged; `UnknownSuite` before anything is."""

    def ballot(self, name: str) -> Ballot:
        """Return the ballot that it votes in."""

    def judge(self, subject: Subject) -> Sequence[CastVote]:
        """Look at rows, and return a vote for each voter of the ballot."""
