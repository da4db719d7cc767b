"""The hot path: batches of plain halves, plain messages and bare decisions."""

from collections.abc import Sequence
from typing import Protocol

from txsaga.errors import TxSagaError
from txsaga.model.records import End, Half, HalfView, Receipt, Standing


class HalfStore(Protocol):
    """Stores and decides many transactions in one durable statement each.

    Each answer stands at the place of its item; an item that failed alone has its error there. A batch that
    raises has stored nothing, and the store has made sure of that by reading back.
    """

    def prepare(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store halves: durable and invisible when this returns, numbered in the order given."""

    def publish(self, halves: Sequence[Half]) -> Sequence[Receipt | TxSagaError]:
        """Store plain messages together with their COMMIT, in the order given."""

    def decide(self, ends: Sequence[End]) -> Sequence[Standing | TxSagaError]:
        """Write decisions for plain halves; the first durable one stands.

        Refused (an error at its place, nothing changed): a half that is not there, that belongs to another
        group or a keyed transaction, a wrong token, an ordinary end after the message's own immunity.
        """

    def views(self, txid: int) -> Sequence[HalfView]:
        """Show the halves of a transaction as they lie; none for an unknown one."""
