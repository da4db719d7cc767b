"""
Where a block stands. It goes one way: what was refused once is refused for good.

It holds no rules of the store. Without it a block could take messages that nobody would ever deliver: before it was
entered, after it was left, or a second time.
"""

from __future__ import annotations

from enum import Enum, auto

from txsaga.errors import TransactionClosed, TransactionError

ENTER = "write `with producer.transaction(…) as tx:`"


class Stage(Enum):
    """Where a block stands."""

    NEW = auto()  # not entered yet
    ENTERING = auto()  # its beginning is under way: whoever else enters it comes too late
    OPEN = auto()  # takes messages
    CLOSING = auto()  # its end is being written: whoever comes meanwhile comes too late
    BROKEN = auto()  # what was sent is not all stored: it can only roll back
    CLOSED = auto()  # its end is written, no local work was begun
    WORKING = auto()  # local work was begun: only its evidence tells whether it committed
    WORKED = auto()  # local work is committed
    LEFT = auto()  # nothing is left to do

    def require_new(self) -> None:
        """Raise unless the block was never entered."""
        if self is not Stage.NEW:
            raise TransactionClosed("a transaction block is used once; make another one with producer.transaction(…)")

    def require_open(self, what: str, txid: int | None) -> None:
        """Raise unless the block takes messages; `what` is what it was asked to do."""
        match self:
            case Stage.OPEN:
                return
            case Stage.NEW | Stage.ENTERING:
                raise TransactionError(f"this block was not entered, it can't {what}; {ENTER}")
            case Stage.BROKEN:
                raise TransactionError(
                    "messages of this transaction could not be stored; leave the block, it rolls back"
                )
            case _:
                whose = "this transaction" if txid is None else f"transaction {txid}"
                raise TransactionClosed(f"{whose} is closed, it can't {what}; open another one")
