"""The list of doubts: transactions without a decision that are due for a check."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Protocol

from txsaga.checkback.questions import Ask, Lead, OpenQuestion, PutOff, QuestionAnswer, VerdictRecord
from txsaga.core.records import DecisionOutcome, Doubt


class Doubts(Protocol):
    """Undecided transactions, when each is checked next, and how often it was."""

    def waiting(self, age: timedelta) -> bool:
        """Return whether a round would find anything; writes nothing."""

    def sweep(self, age: timedelta) -> int:
        """Put half messages and closed transactions older than `age`, or than their group's setting, on the list.

        Each half message is examined once, and again later for numbers older than their commit. An open transaction is
        listed when its owner sent no heartbeat for `LEASE`.
        """

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return transactions that are due, without a decision and without an open question; oldest first."""

    def of(self, txid: int) -> Doubt | None:
        """Return what is needed to decide one transaction, listed or not, decided or not; None for an unknown one."""

    def hold(self, held: Sequence[Doubt], lease: timedelta) -> None:
        """Delay the checks of transactions that are being worked on by at least `lease` from now."""

    def rests(self, txid: int, age: timedelta) -> bool:
        """Return whether a transaction must not be checked yet, listed or not.

        It is younger than `age`, its group's minimum age or its own immunity, or it is held.
        """

    def settle(self, verdicts: Sequence[VerdictRecord], who: str) -> Sequence[DecisionOutcome]:
        """Decide plain half messages with their audit rows, and remove them from the list, all in one step."""

    def put_off(self, doubts: Sequence[PutOff], lead: Lead | None = None) -> bool:
        """Postpone checks, with a remark each; False, and nothing done, when the lead was lost."""


class Leases(Protocol):
    """Leases by kind and name."""

    def acquire(self, kind: str, name: str, holder: str, ttl: timedelta) -> Lead | None:
        """Take a free lease, or extend one's own; None while another holder has it."""

    def release(self, lead: Lead) -> None:
        """Give a lease back; one that was lost meanwhile stays with its new holder."""

    def keep(self, kinds: Sequence[str], name: str, ttl: timedelta) -> None:
        """Mark a member of each of these kinds as alive."""

    def drop(self, kinds: Sequence[str], name: str) -> None:
        """Drop its leases: it has left."""

    def alive(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the live names, by kind."""


class Questions(Protocol):
    """At most one question about a transaction is open."""

    def ask(self, asks: Sequence[Ask], lead: Lead) -> Sequence[int]:
        """Ask questions and count their checks in one durable step; return the transactions that are asked about.

        None of them where the lead was lost; not one that is decided or has an open question.
        """

    def backlog(self) -> Mapping[str, int]:
        """Return how many questions each member has."""

    def take(self, member: str, limit: int) -> Sequence[OpenQuestion]:
        """Take up a member's questions; from now on its time to answer runs."""

    def answered(self, member: str, answers: Sequence[QuestionAnswer]) -> None:
        """Remove questions: decided transactions leave the list of doubts, UNKNOWN leaves a remark.

        An answer without a state does not count, and the next check is due at once.
        """

    def collect(self) -> int:
        """Remove unanswered questions, with a remark; one that was not taken up does not count.

        A question waits twenty times its patience to be taken up, and once to be answered. One about a decided
        transaction goes at once if it was not taken up; otherwise its member removes it.
        """


class RunState(Enum):
    """What a host reports about a run; never that a transaction is to be committed."""

    ALIVE = auto()  # queued, running, deferred, waiting for input
    UNREACHABLE = auto()  # unknown: the transaction waits, until its total time is over
    OVER = auto()  # it ended, or is unknown


class Runs(Protocol):
    """The runs of one host."""

    def state(self, run: str) -> RunState:
        """Return the state of a run."""
