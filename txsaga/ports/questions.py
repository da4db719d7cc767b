"""Questions: how check-back asks the members of a producer group, and how they answer."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from txsaga.model.asking import Answer, Ask, Asked, Lead


class Questions(Protocol):
    """At most one question about a transaction is under way."""

    def ask(self, asks: Sequence[Ask], lead: Lead) -> Sequence[int]:
        """Put questions and count their checks in one durable step; return the transactions that are asked about.

        None where the lead was lost, the transaction is decided, or a question about it is under way.
        """

    def backlog(self) -> Mapping[str, int]:
        """Return how many questions each member has."""

    def take(self, member: str, limit: int) -> Sequence[Asked]:
        """Take up questions put to a member; from now on its time to answer runs."""

    def answered(self, member: str, answers: Sequence[Answer]) -> None:
        """Take questions away: what was decided leaves the list of doubts, UNKNOWN leaves a remark.

        What nobody there has seen does not count, and is due at once.
        """

    def collect(self) -> int:
        """Take away questions that nobody answers, with a remark; one that nobody took up does not count.

        A question waits twenty times its patience to be taken up, and has it once to be answered. One about what is
        decided goes at once where nobody took it up; who did takes it away.
        """
