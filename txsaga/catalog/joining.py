"""
Commits of Iceberg clients inside a transaction of another process: staged, and visible with its decision, or never.

The token names a contribution and its attempt. What is staged under it counts only if that attempt wins (R4): a client
that goes on for an abandoned one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from txsaga.catalog.refusals import conflict
from txsaga.catalog.repeats import Staged
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.table_gates import GatedChange, turn
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.errors import Superseded, TransactionClosed, UnknownTransaction
from txsaga.flows.ballot import Result
from txsaga.flows.flow_begin import opened
from txsaga.flows.step import StepState, last_attempts
from txsaga.lake import gates
from txsaga.lake.gates import Judged
from txsaga.lake.table import TABLE_EFFECT, Effect, TransactionToken
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class JoinedTransaction:
    """The contribution of a token."""

    def __init__(self, kernel: Kernel, store: CatalogStore, text: str, *, limited: bool = False) -> None:
        self._kernel, self._store, self._token, self._limited = kernel, store, TransactionToken.read(text), limited
        self._txid = kernel.store.registry.identity.own(self._token.transaction)

    def staged(self) -> Staged:
        """Return what was staged so far."""
        with self._kernel.store.ledgers.open() as ledger:
            self._own(ledger)
            return self._staged(ledger)

    def stage(self, writes_after: Callable[[Staged], Staged], gated: Sequence[GatedChange]) -> None:
        """Stage what `writes_after` returns for what was staged before, once the gates in it have voted."""
        with self._opened() as ledger:
            before = self._staged(ledger)
            writes = writes_after(before)
            if not gated:
                return self._keep(ledger, writes)
        found = [*self._judged(gated)]  # which takes seconds: nobody has to wait for it
        with self._opened() as ledger:
            if self._staged(ledger) != before:
                raise conflict("another commit joined the transaction meanwhile; commit again")
            if all(each.result is Result.CARRIED for each in found):
                self._keep(ledger, writes)
            for each in found:
                gates.vote(ledger, self._txid, each)
        for each in found:
            gates.require_passed(each, self._txid)

    @contextmanager
    def _opened(self) -> Iterator[Ledger]:
        with (
            self._kernel.announce.around(facts.Filing, self._txid, about="a commit that joins"),
            self._kernel.store.ledgers.open() as ledger,
        ):
            self._own(ledger)
            yield ledger

    def _judged(self, gated: Sequence[GatedChange]) -> Iterator[Judged]:
        for each in gated:
            name = f"{each.name} {self._token.part}.{self._token.attempt}.{each.after.current_id}"
            with turn():
                subject = each.subject(self._kernel.tables.lake, own=self._limited)
                found = None if subject is None else gates.judged(each.gate, name, subject)
            if found is not None:
                yield found

    def _keep(self, ledger: Ledger, writes: Staged) -> None:
        place = self._token.part, self._token.attempt
        ledger.keep(self._txid, [Effect(TABLE_EFFECT, *place, write.payload()) for write in writes])

    def _staged(self, ledger: Ledger) -> Staged:
        return self._store.within(ledger.connection).staged(self._txid, self._token.part, self._token.attempt)

    def _own(self, ledger: Ledger) -> None:
        """Lock the transaction's record, and make sure that the attempt of the token still is the one that counts."""
        token, found = self._token, ledger.lock(self._txid)
        if found is None or not token.is_sealed(found.token):
            raise UnknownTransaction(f"transaction {token.transaction} is not in this store, or this is not its token")
        life = replace(found, owner=token.owner)
        if not token.step:
            return TxRecords(self._kernel).own(ledger, life)
        steps = [each for each in last_attempts(opened(ledger, life).steps) if each.number == token.step]
        if not steps or steps[0].attempt != token.attempt:
            raise Superseded(self._txid)
        if steps[0].state is not StepState.STARTED:
            raise TransactionClosed(
                f"step {steps[0].name!r} of transaction {self._txid} has ended; nothing can be added"
            )
