"""The work style: messages claimed one by one or in runs, acknowledged, put back, buried."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from txsaga.errors import TxSagaError
from txsaga.model.claim import Burial, Claim, Hold, Unread


class Claims(Protocol):
    """Claims beside the cursors. The store's clock decides; what ran out is lost to its member.

    A cursor stands behind everything that was handed out once; what is not done of it lies in claims.
    """

    def take_new(self, group: str, qids: Sequence[int], after: int, limit: int, hold: Hold) -> Claim | None:
        """Claim up to `limit` messages that nobody has taken yet, of the first free queue behind `after`."""

    def take_due(self, group: str, qids: Sequence[int], limit: int, hold: Hold) -> Sequence[Claim]:
        """Claim messages that were put back or ran out and whose time has come, raising their attempts.

        What was taken before comes alone: whatever it did to its member, it does to none of its neighbours. A run
        that ran out comes apart. Messages that are lined up come once nothing before them has their key.
        """

    def unread(self, group: str, qids: Sequence[int], after: int, limit: int, window: int) -> Unread | None:
        """Find messages to be lined up, of the first queue behind `after` that has less than `window` in claims."""

    def line_up(self, group: str, found: Unread, keys: Sequence[int | None]) -> bool:
        """Put unread messages into claims that nobody holds, each with its key; False when a rival was first."""

    def ack(self, claims: Sequence[Claim]) -> Sequence[TxSagaError | None]:
        """Take the open messages of these claims off the group; `ClaimLost` in the place of each that is lost.

        A message that was acknowledged, put back or bound before is lost to its claim; the others of it are done.
        """

    def extend(self, claim: Claim, by: timedelta) -> None:
        """Hold a claim for so long from now on; `ClaimLost` when it is lost."""

    def put_back(self, claim: Claim, delay: timedelta, cause: str) -> None:
        """Let the one open message of a claim come again, with the cause; `ClaimLost` when it is lost."""

    def give_back(self, claim: Claim) -> None:
        """Let messages come again at once, as if they had not been taken; what is lost is nobody's loss."""

    def bury(self, claim: Claim, burial: Burial) -> None:
        """Take the one open message of a claim off the group, into a backout queue or to the dead letters.

        Both are done in one commit, history and all; `ClaimLost` when the claim is lost.
        """

    def drop(self, claim: Claim) -> None:
        """Take the one open message of a claim off the group for good; `ClaimLost` when it is lost."""
