"""The hot path: batches of plain halves, plain messages and bare decisions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from txsaga.errors import TxSagaError
from txsaga.model.records import Content, End, Half, HalfView, Receipt, Standing


class Written(NamedTuple):
    """What became of a batch, each answer at the place of its item; an item that failed alone has its error."""

    receipts: Sequence[Receipt | TxSagaError]
    standings: Sequence[Standing | TxSagaError]


class HalfStore(Protocol):
    """Stores and decides many transactions in one durable step.

    A batch that raises has stored nothing, and the store has made sure of that by reading back.
    """

    def write(self, halves: Sequence[Half], ends: Sequence[End]) -> Written:
        """Store halves in the order given, plain ones together with their COMMIT, and write decisions.

        One with `due` goes on the schedule, as it is; a ROLLBACK that `recalls` takes it off.

        A half is durable and invisible when this returns. Of decisions the first durable one stands. Refused
        (an error at its place, nothing changed): a half that is not there, that belongs to another
        group or a keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """
        ...

    def store(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store halves, plain or not."""
        return self.write(halves, ()).receipts

    def decide(self, ends: Sequence[End]) -> Sequence[Standing | TxSagaError]:
        """Write decisions."""
        return self.write((), ends).standings

    def views(self, txid: int) -> Sequence[HalfView]:
        """Show the halves of a transaction as they lie; none for an unknown one."""

    def contents(self, txid: int) -> Sequence[Content]:
        """Read what a transaction would deliver: its halves, and of a keyed one the attempts that count."""

    def views_of(self, txids: Sequence[int]) -> Mapping[int, tuple[HalfView, ...]]:
        """Show the halves of several transactions."""
        return {txid: tuple(self.views(txid)) for txid in txids}
