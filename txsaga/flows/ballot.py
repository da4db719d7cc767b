"""
Ballots: named votes that a decision waits for, in addition to the votes of the resources.

A voter (a data check, a person, a quota) votes yes or no, with its evidence. Its first vote is final. Any COMMIT is
refused until every ballot is carried; one that only warns is always carried, and reported. Nothing is counted before
the decision: the same votes lead to the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto

from txsaga.core.arguments import check_kind
from txsaga.core.stored_json import as_json, is_text
from txsaga.errors import ConfigError, NotCarried


class Rule(StrEnum):
    """How many yes votes carry a ballot."""

    ALL = "all"
    QUORUM = "quorum"  # the given number of its voters
    WARN = "warn"  # no vote is needed; missing yes votes are reported


class Result(Enum):
    """The result of a ballot."""

    CARRIED = auto()
    REFUSED = auto()  # no further vote can carry it
    OPEN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """A ballot and its voters."""

    name: str
    voters: tuple[str, ...]
    rule: Rule = Rule.ALL
    needed: int | None = None  # yes votes needed for a quorum

    def __post_init__(self) -> None:
        self._check_kinds()
        if (
            not _is_name(self.name)
            or not self.voters
            or not all(map(_is_name, self.voters))
            or len(set(self.voters)) != len(self.voters)
        ):
            raise ConfigError(f"ballot {self.name!r} needs a name, and a list of different voters")
        if (self.rule is Rule.QUORUM) != (self.needed is not None):
            raise ConfigError(f"ballot {self.name!r}: needed=… is required for a quorum, and only for it")
        if self.needed is not None and not 1 <= self.needed <= len(self.voters):
            raise ConfigError(
                f"ballot {self.name!r} has {len(self.voters)} voters, so needed={self.needed} is not possible"
            )

    def _check_kinds(self) -> None:
        check_kind(self.name, str, "the name of a ballot", "give a text")
        check_kind(self.voters, (tuple, list), f"voters of ballot {self.name!r}", "give a tuple of their names")
        for voter in self.voters:
            check_kind(voter, str, f"a voter of ballot {self.name!r}", "give their names one by one, as texts")
        check_kind(self.rule, Rule, f"the rule of ballot {self.name!r}", "give one of Rule")
        if self.needed is not None:
            check_kind(self.needed, int, f"needed of ballot {self.name!r}", "give a number of votes")


def _is_name(name: str) -> bool:
    return bool(name) and is_text(name)


def rule_of(rule: Rule | str) -> Rule:
    """Return the rule with this name."""
    try:
        return Rule(rule)
    except ValueError:
        raise ConfigError(f"unknown rule {rule!r} for a ballot; use one of {', '.join(Rule)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CastVote:
    """One vote."""

    voter: str
    yes: bool
    evidence: Mapping[str, object] = field(default_factory=dict)
    at: datetime | None = None  # by the store's clock

    def __post_init__(self) -> None:
        check_kind(self.voter, str, "the voter", "give its name")
        check_kind(self.yes, bool, f"yes of voter {self.voter!r}", "give True or False")
        evidence = f"the evidence of voter {self.voter!r}"
        check_kind(self.evidence, Mapping, evidence, "give a mapping of names to JSON values")
        as_json(dict(self.evidence), evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """A ballot with its votes."""

    ballot: Ballot
    casts: tuple[CastVote, ...] = ()

    @property
    def result(self) -> Result:
        """Count the votes."""
        yes, no = self._count(yes=True), self._count(yes=False)
        needed = self.ballot.needed or len(self.ballot.voters)
        if self.ballot.rule is Rule.WARN or yes >= needed:
            return Result.CARRIED
        return Result.REFUSED if no > len(self.ballot.voters) - needed else Result.OPEN

    @property
    def missing(self) -> tuple[str, ...]:
        """The voters who did not vote yes."""
        said = {cast.voter for cast in self.casts if cast.yes}
        return tuple(voter for voter in self.ballot.voters if voter not in said)

    def _count(self, *, yes: bool) -> int:
        return len({cast.voter for cast in self.casts if cast.yes is yes})


def require_same(known: Ballot, called: Ballot) -> None:
    """Raise `ConfigError` if a reopened ballot has another rule or other voters: a retry opens the same one."""
    if (known.rule, known.needed, set(known.voters)) != (called.rule, called.needed, set(called.voters)):
        raise ConfigError(
            f"ballot {called.name!r} is already called in this transaction, with another rule or other voters; give "
            "this one a different name"
        )


def require_carried(polls: Sequence[Polled]) -> None:
    """Raise `NotCarried` for the first ballot that is refused or still open."""
    for poll in polls:
        match poll.result:
            case Result.REFUSED:
                raise NotCarried(poll.ballot.name, f"{', '.join(poll.missing)} did not vote yes")
            case Result.OPEN:
                raise NotCarried(poll.ballot.name, f"the votes of {', '.join(poll.missing)} are missing")
            case Result.CARRIED:
                continue
