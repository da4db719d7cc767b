"""
What a step of a flow writes into tables, and the votes of its gates: recorded with the end of the step.

Rows are staged at once, under the number of the attempt. Their records and the yes of gates are stored in the commit
that ends the step, so that an attempt which is superseded, or fails, publishes nothing (R4). The no of a gate is stored
at once: from then on the flow can only roll back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from txsaga.core.kernel import Kernel
from txsaga.core.records import FRAMES, TxRecord
from txsaga.errors import ConfigError
from txsaga.flows.ballot import Result
from txsaga.flows.step import Step
from txsaga.flows.step_attempts import PARTS, current_attempt
from txsaga.lake import gates
from txsaga.lake.gates import Gate, Judged, together
from txsaga.lake.home_rows import RowsMode, RowsWrite
from txsaga.lake.table import ROWS_EFFECT, TABLE_EFFECT, Effect, TableName, TableWrite, TransactionToken, WriteMode
from txsaga.lake.table_writes import Table, TableWrites
from txsaga.messages.tx_records import all_amended

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


FRAMES_OF_STEP = 16
STEPS_WITH_FRAMES = 128
"""So that a part number fits in 32 bits."""


class FlowTables(TableWrites):
    """What one attempt of a step writes into tables."""

    def __init__(self, kernel: Kernel, step: Step, life: Callable[[str], TxRecord]) -> None:
        super().__init__(kernel, PARTS + step.number, life)
        self._step, self._judged, self._won = step, list[Judged](), list[tuple[int, int]]()
        self._known, self._frames = False, count(1)
        self._joined: int | None = None

    def table(self, said: str) -> Table:
        """Return a table by its name; an earlier step may have created it."""
        if not self._known:
            self._find_created()
        return super().table(said)

    def record(self, ledger: Ledger) -> None:
        """Store everything, in the commit that ends the step."""
        life = self.life("write to a table")
        ledger.keep(life.txid, self.recorded)
        for found in self._judged:
            gates.vote(ledger, life.txid, found)
        if self.recorded:
            ledger.win(life.txid, self._part, life.owner)
        for part, attempt in self._won:
            ledger.win(life.txid, part, attempt)

    def file(self, life: TxRecord, about: object, effect: Effect) -> None:
        """Keep what was staged until the step ends; an amendment can't add to a table that holds what it amends."""
        write = RowsWrite.read(effect.payload)
        if write.mode is not RowsMode.REPLACE:
            self._require_first(write.target, partial(_placed, target=write.target), "replace(rows)")
        self.recorded.append(effect)

    def admit(self, name: TableName, mode: WriteMode) -> None:
        """Refuse to add to a table that holds what is amended."""
        if mode is WriteMode.APPEND:
            self._require_not_twice(name)

    def known(self, life: TxRecord) -> Sequence[TableWrite]:
        """Return everything written into tables so far, also by earlier steps."""
        return [*self._stored(life), *super().known(life)]

    def check_staged(self, said: str, gate: Gate) -> Judged:
        """Let a gate check what earlier steps have staged for a table."""
        life, name = self.life("check rows"), self._kernel.tables.name(said)
        writes = [each for each in self._stored(life) if each.name == name and each.mode is not WriteMode.CREATE]
        gates.start(gate)
        subjects = [self._kernel.tables.lake.subject(each) for each in writes]
        subject = together(str(name), subjects)
        ballot = f"{name} {self._part}.{self._step.attempt}.{next(self._numbers)}"
        found = gates.judged(gate, ballot, subject)
        self._record(life, name, None, found)
        return found

    def next_frame(self) -> int:
        """Return the first part number of the next frame of messages."""
        number = next(self._frames)
        if number >= FRAMES_OF_STEP or self._step.number >= STEPS_WITH_FRAMES:
            raise ConfigError(
                f"a step sends at most {FRAMES_OF_STEP - 1} frames, and steps after number {STEPS_WITH_FRAMES - 1} "
                "none; combine frames, or send them in an earlier step"
            )
        return (self._step.number * FRAMES_OF_STEP + number) * FRAMES

    def frame_won(self, part: int, attempt: int) -> None:
        """Note which attempt of a frame counts once the step is done."""
        self._won.append((part, attempt))

    def token(self) -> str:
        """Return the text by which other programs join: what they commit and send counts if this attempt does."""
        life, attempt = self.life("be joined"), self._step.attempt
        if self._joined is None:
            self._joined = self.next_frame()
            self.frame_won(self._joined, attempt)
        numbers = (life.owner, self._joined, attempt, self._step.number)
        return str(TransactionToken.sealed(self._identity(life), life.token, *numbers))

    def attempt(self, life: TxRecord) -> int:
        """Return the number of the attempt, which names what it stages."""
        return self._step.attempt

    def own(self, ledger: Ledger, life: TxRecord) -> None:
        """Lock the flow, and make sure that this attempt still is the step's: no other's gate may vote for it."""
        current_attempt(ledger, life, self._step)

    def _record(self, life: TxRecord, about: object, write: TableWrite | None, found: Judged | None = None) -> None:
        if found is not None and found.result is not Result.CARRIED:
            with self._recording(life, about) as ledger:
                gates.vote(ledger, life.txid, found)
            gates.require_passed(found, life.txid)
        if write is not None:
            self.recorded.append(Effect(TABLE_EFFECT, self._part, life.owner, write.payload()))
        if found is not None:
            self._judged.append(found)

    def _require_not_twice(self, name: TableName) -> None:
        self._require_first(name, partial(_wrote, name=name), "overwrite(rows, where=…)")

    def _require_first(self, table: object, wrote: Callable[[Effect], bool], remedy: str) -> None:
        """Refuse to add to a table that an amended transaction wrote to: its rows would stay alongside the new ones."""
        life = self.life("write to a table")
        with self._kernel.store.ledgers.open() as ledger:
            of = next((each for each in all_amended(ledger, life) if any(map(wrote, ledger.effects(each)))), None)
        if of is not None:
            raise ConfigError(
                f"table {table} has rows of transaction {of}, which is amended: appended rows would duplicate them; "
                f"replace them with {remedy}"
            )

    def _find_created(self) -> None:
        for write in self._stored(self.life("write to a table")):
            if write.mode is WriteMode.CREATE:
                self._created[TableName(*write.name)] = str(write.created)
                self._seen[TableName(*write.name)] = None
        self._known = True

    def _stored(self, life: TxRecord) -> list[TableWrite]:
        """Return what earlier steps have staged for tables."""
        with self._kernel.store.ledgers.open() as ledger:
            effects = ledger.effects(life.txid)
        return [TableWrite.read(each.payload) for each in effects if each.kind == TABLE_EFFECT]


def _wrote(effect: Effect, name: TableName) -> bool:
    write = TableWrite.read(effect.payload) if effect.kind == TABLE_EFFECT else None
    return write is not None and write.name == name and write.mode is not WriteMode.CREATE


def _placed(effect: Effect, target: str) -> bool:
    return effect.kind == ROWS_EFFECT and RowsWrite.read(effect.payload).target == target
