"""
What one block has in the store: a keyed life, or one half without a key, or nothing yet.

It writes and decides as the block's owner; when to do what is the block's affair. Everything that is added is
added under the life's lock and owner (R3, R4). The end is written with the last halves in ONE commit (R1): if that
never runs, nobody but the owner can commit, and others roll back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txsaga.engine.decide import By
from txsaga.engine.kernel import Kernel
from txsaga.engine.life import Lives
from txsaga.engine.patience import patiently
from txsaga.engine.waiting import away
from txsaga.errors import InvalidMessage, OutcomeUnknown, SendFailed, StoreUnavailable
from txsaga.model import facts
from txsaga.model.decision import NOT_SAFE, Code, Decision
from txsaga.model.lifecycle import TxEvent
from txsaga.model.records import Doubt, End, Group, Half, LateSlot, Life, Receipt, Row, Standing
from txsaga.model.table import Effect

PART = 1
"""A block is one contribution; its attempt is the owner."""


class Contribution:
    """The rows of one block."""

    def __init__(self, kernel: Kernel, group: Group, immunity: int | None, run: str | None = None) -> None:
        self._kernel, self._group, self._immunity, self._run = kernel, group, immunity, run
        self._lives = Lives(kernel)
        self._evidence: int | None = None
        self.life: Life | None = None
        self.receipt: Receipt | None = None

    @property
    def txid(self) -> int | None:
        """The number of the transaction, once it has one."""
        return None if self._stored is None else self._stored.txid

    @property
    def _stored(self) -> Life | Receipt | None:
        return self.life or self.receipt

    @property
    def may_roll_back(self) -> bool:
        """Tell whether there is something that its owner rolls back; any other half is left to the check."""
        return self.life is not None or (self.receipt is not None and self.receipt.code in NOT_SAFE)

    def enter(self, key: str) -> None:
        """Join or open the life of a key, or refuse what the key already did."""
        self.life = self._lives.enter(self._group, key, self._run)
        self._kernel.running.begin(self, Doubt.of(self.life))

    def opened(self) -> Life:
        """Return the life, opening one for a block without a key."""
        if self.life is None:
            if self._immunity is not None:
                raise InvalidMessage("immunity is for halves; leave it out where offsets or late bodies join in")
            self.life = self._lives.open_unkeyed(self._group, self._run)
            self._kernel.running.begin(self, Doubt.of(self.life))
        return self.life

    def add(self, life: Life, rows: Sequence[Row]) -> None:
        """Add halves."""
        with self._kernel.announce.around(facts.Adding, life.txid), self._kernel.store.ledgers.open() as ledger:
            self._lives.hold(ledger, life)
            ledger.add(life, PART, rows)

    def reserve(self, life: Life, slot: LateSlot) -> None:
        """Keep a place for a late body."""
        with self._kernel.announce.around(facts.Reserving, life.txid), self._kernel.store.ledgers.open() as ledger:
            self._lives.hold(ledger, life)
            ledger.reserve(slot)

    def close(self, rows: Sequence[Row], evidence: int | None) -> None:
        """Store the remaining halves and the end; `evidence` is the resource that will hold it."""
        if self.life is None and rows:
            self.receipt = self._kernel.stores.call(Half(self._group.id, rows, evidence, self._immunity))
            if self.receipt.code is not Code.SEND_OK:
                why = f"the half was answered with {self.receipt.code}; no local work was begun"
                raise SendFailed(StoreUnavailable(why))
            if self._immunity is None:  # else it says itself when it is asked about
                self._kernel.running.begin(self, Doubt.of(self.receipt))
        else:
            away(lambda: self._end(self.opened(), rows, evidence))
        self._evidence = evidence

    def leave(self) -> None:
        """Work on it no more: from here on others may ask about it."""
        self._kernel.running.end(self)

    def doubt(self) -> Doubt:
        """Ask about it as others would."""
        assert self._stored is not None
        return Doubt.of(self._stored, self._evidence)

    def decide(
        self, decision: Decision, why: str, bodies: Mapping[int, bytes], known: Sequence[Effect] = ()
    ) -> Standing:
        """Decide as the owner; return what stands."""
        stored = self._stored
        assert stored is not None
        self._kernel.tell_hooks(self._group, stored, decision, why)
        if self.life is not None:
            by, decide = By(who=f"owner {self.life.owner}", why=why, owner=self.life.owner), self._kernel.decider.decide
            return away(lambda: decide(stored.txid, decision, by, bodies=bodies, known=known))
        return self._kernel.decides.call(End(stored.txid, stored.group, stored.token, decision))

    def _end(self, life: Life, rows: Sequence[Row], evidence: int | None) -> None:
        with self._kernel.announce.around(facts.Ending, life.txid):
            try:
                self._write_end(life, rows, evidence)
            except OutcomeUnknown:
                if not patiently(lambda: self._lives.has_ended(life)):
                    raise

    def _write_end(self, life: Life, rows: Sequence[Row], evidence: int | None) -> None:
        with self._kernel.store.ledgers.open() as ledger:
            self._lives.own(ledger, life)
            if rows:
                ledger.add(life, PART, rows)
            ledger.win(life.txid, PART, life.owner)
            ledger.move(life.txid, TxEvent.END, evidence=evidence)
