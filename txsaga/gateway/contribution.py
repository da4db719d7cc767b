"""
What a token lets other processes add to an open transaction: visible with its decision, or never.

The token names a contribution and its attempt: that of a block, or of a step. What is added under it counts only if
that attempt wins (R4): a client that goes on for an abandoned one changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.core.layout import lay_out_one
from txsaga.core.message import Message
from txsaga.core.records import TxRecord
from txsaga.core.topic import SendKind
from txsaga.errors import Superseded, TransactionClosed, UnknownTransaction
from txsaga.flows.flow_begin import opened
from txsaga.flows.step import StepState, last_attempts
from txsaga.lake.table import TransactionToken
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class TokenContribution:
    """The contribution of a token."""

    def __init__(self, kernel: Kernel, text: str) -> None:
        self._kernel, self.token = kernel, TransactionToken.read(text)
        self.txid = kernel.store.registry.identity.own(self.token.transaction)

    def send(self, message: Message) -> int:
        """Add a message; return the number of its transaction."""
        message, qid = self._kernel.topics.admit(message, SendKind.HALF)
        with self._kernel.announce.around(facts.Adding, self.txid), self._kernel.store.ledgers.open() as ledger:
            life, token = self.own(ledger), self.token
            ledger.add_last(replace(life, owner=token.attempt), token.part, qid, lay_out_one(message))
            if not token.step:  # a step says so when it ends
                ledger.win(self.txid, token.part, token.attempt)
        return self.txid

    def own(self, ledger: Ledger) -> TxRecord:
        """Lock the transaction's record, and make sure that the attempt of the token still is the one that counts."""
        token, found = self.token, ledger.lock(self.txid)
        if found is None or not token.is_sealed(found.token):
            raise UnknownTransaction(f"transaction {token.transaction} is not in this store, or this is not its token")
        life = replace(found, owner=token.owner)
        if not token.step:
            TxRecords(self._kernel).own(ledger, life)
            return life
        steps = [each for each in last_attempts(opened(ledger, life).steps) if each.number == token.step]
        if not steps or steps[0].attempt != token.attempt:
            raise Superseded(self.txid)
        if steps[0].state is not StepState.STARTED:
            raise TransactionClosed(
                f"step {steps[0].name!r} of transaction {self.txid} has ended; nothing can be added"
            )
        return life
