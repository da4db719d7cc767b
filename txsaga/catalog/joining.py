"""
Commits of Iceberg clients inside a transaction of another process: staged, and visible with its decision, or never.

What is staged counts only if the attempt of the token wins (R4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from txsaga.catalog.refusals import conflict
from txsaga.catalog.repeats import Staged
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.table_gates import GatedChange, turn
from txsaga.core import facts
from txsaga.core.kernel import Kernel
from txsaga.flows.ballot import Result
from txsaga.gateway.contribution import TokenContribution
from txsaga.lake import gates
from txsaga.lake.gates import Judged
from txsaga.lake.table import TABLE_EFFECT, Effect

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class JoinedTransaction:
    """The contribution of a token."""

    def __init__(self, kernel: Kernel, store: CatalogStore, text: str, *, limited: bool = False) -> None:
        self._kernel, self._store, self._limited = kernel, store, limited
        self._contribution = TokenContribution(kernel, text)
        self._token, self._txid = self._contribution.token, self._contribution.txid

    def staged(self) -> Staged:
        """Return what was staged so far."""
        with self._kernel.store.ledgers.open() as ledger:
            self._contribution.own(ledger)
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
            self._contribution.own(ledger)
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
