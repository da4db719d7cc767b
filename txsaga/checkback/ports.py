"""The list of doubts: transactions without a decision whose time has come."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Protocol

from txsaga.checkback.questions import Ask, Lead, OpenQuestion, PutOff, QuestionAnswer, VerdictRecord
from txsaga.core.records import DecisionOutcome, Doubt


class Doubts(Protocol):
    """Undecided transactions, when each is asked about next, and how often it was."""

    def waiting(self, age: timedelta) -> bool:
        """Tell whether a round would find anything; nothing is written."""

    def sweep(self, age: timedelta) -> int:
        """Put halves and closed transactions older than `age`, or than their group says, on the list.

        Each half is looked at once, and once more later for those whose number is older than their commit. An open
        transaction is listed when its owner has not been heard of for `LEASE`.
        """

    def due(self, limit: int) -> Sequence[Doubt]:
        """Return transactions that are due, without a decision and not being asked about; oldest first."""

    def of(self, txid: int) -> Doubt | None:
        """Return what deciding one transaction needs, listed or not, decided or not; None for an unknown one."""

    def hold(self, held: Sequence[Doubt], lease: timedelta) -> None:
        """Ask about transactions that are being worked on no earlier than in `lease` from now."""

    def rests(self, txid: int, age: timedelta) -> bool:
        """Tell whether nobody is to ask about a transaction yet, listed or not.

        It is younger than `age`, or than its group or its own immunity says, or it is held.
        """

    def settle(self, verdicts: Sequence[VerdictRecord], who: str) -> Sequence[DecisionOutcome]:
        """Decide plain halves, their audit rows with them, and take them off the list, all in one step."""

    def put_off(self, doubts: Sequence[PutOff], lead: Lead | None = None) -> bool:
        """Ask again later, with a remark each; False, and nothing done, when the lead was lost."""


class Leases(Protocol):
    """Leases by kind and name."""

    def acquire(self, kind: str, name: str, holder: str, ttl: timedelta) -> Lead | None:
        """Take a lease that nobody holds, or hold one's own for longer; None while it is another's."""

    def release(self, lead: Lead) -> None:
        """Give a lease back; one that was lost meanwhile stays the other's."""

    def keep(self, kinds: Sequence[str], name: str, ttl: timedelta) -> None:
        """Show that a member of each of these kinds is alive."""

    def drop(self, kinds: Sequence[str], name: str) -> None:
        """Show that it has left."""

    def alive(self, kinds: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the names that are alive, by kind."""


class Questions(Protocol):
    """At most one question about a transaction is under way."""

    def ask(self, asks: Sequence[Ask], lead: Lead) -> Sequence[int]:
        """Put questions and count their checks in one durable step; return the transactions that are asked about.

        None where the lead was lost, the transaction is decided, or a question about it is under way.
        """

    def backlog(self) -> Mapping[str, int]:
        """Return how many questions each member has."""

    def take(self, member: str, limit: int) -> Sequence[OpenQuestion]:
        """Take up questions put to a member; from now on its time to answer runs."""

    def answered(self, member: str, answers: Sequence[QuestionAnswer]) -> None:
        """Take questions away: what was decided leaves the list of doubts, UNKNOWN leaves a remark.

        What nobody there has seen does not count, and is due at once.
        """

    def collect(self) -> int:
        """Take away questions that nobody answers, with a remark; one that nobody took up does not count.

        A question waits twenty times its patience to be taken up, and has it once to be answered. One about what is
        decided goes at once where nobody took it up; who did takes it away.
        """


class RunState(Enum):
    """What a host says of a run; it never says that a transaction is to be committed."""

    ALIVE = auto()  # queued, running, deferred, waiting for somebody
    UNREACHABLE = auto()  # nobody can say: it waits, until its total time is over
    OVER = auto()  # it ended, or nobody knows it


class Runs(Protocol):
    """The runs of one host."""

    def state(self, run: str) -> RunState:
        """Say what became of a run."""
