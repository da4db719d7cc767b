"""Effects and pointers in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.rows import Kept
from txsaga.errors import PointerMoved, TransactionClosed
from txsaga.lake.effects_store import TableLedger
from txsaga.lake.table import Effect, Swap, TableName


class MemoryTables(TableLedger):
    """The effects and pointers of one open block."""

    _kept: Kept

    def keep(self, txid: int, kept: Sequence[Effect]) -> None:
        """Keep what the decision shall do."""
        if kept:
            self._kept.effects[txid] = (*self._kept.effects.get(txid, ()), *kept)

    def effects(self, txid: int) -> Sequence[Effect]:
        """Return the effects that count."""
        kept = self._kept.effects.get(txid, ())
        return [each for each in kept if self._kept.winners.get((txid, each.part)) == each.attempt]

    def swap(self, swaps: Sequence[Swap]) -> None:
        """Move pointers."""
        for name, old, new in swaps:
            if self._kept.pointers.get(name) != old:
                raise PointerMoved(f"table {name} does not lead to {old}")
            if new is None:
                del self._kept.pointers[name]
            else:
                self._kept.pointers[name] = new

    def reserve_table(self, txid: int, name: TableName, parts: Sequence[str]) -> int | None:
        """Let only this transaction overwrite parts of a table."""
        self._require_undecided(txid)
        for (held, part), holder in self._kept.table_intents.items():
            meets = part in parts or "" in parts or not part
            if held == name and meets and holder != txid and holder not in self._kept.ops:
                return holder
        self._kept.table_intents |= {(name, part): txid for part in parts}
        return None

    def _require_undecided(self, txid: int) -> None:
        if txid in self._kept.ops:
            raise TransactionClosed(f"transaction {txid} is decided; nothing can be added any more")
