"""The list of doubts: transactions without a decision whose time has come."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from txsaga.model.asking import Lead, PutOff, Verdict
from txsaga.model.records import Doubt, Standing


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

    def settle(self, verdicts: Sequence[Verdict], who: str) -> Sequence[Standing]:
        """Decide plain halves, their audit rows with them, and take them off the list, all in one step."""

    def put_off(self, doubts: Sequence[PutOff], lead: Lead | None = None) -> bool:
        """Ask again later, with a remark each; False, and nothing done, when the lead was lost."""
