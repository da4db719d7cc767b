"""
Writing into tables inside a transaction: staged at once, visible with its decision.

    tx.table("bank.ledger").append(rows)
    tx.table("bank.balance").overwrite(rows, where={"day": day}, gate=expect("balances"))
    tx.table("bank.ledger").branch(spark)  # any statement of Spark's, on a branch
    tx.rows("shop.sale").insert(frame)  # a table of the home database itself

Each write is staged where no reader sees it, then its record is stored; from then on any process that decides publishes
it (R2). If a writer stops between the two, its files belong to no record, and are collected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakMethod

from txsaga.core import facts
from txsaga.core.arguments import check_kind
from txsaga.core.failure import on_failure
from txsaga.core.kernel import Kernel
from txsaga.core.records import TxRecord
from txsaga.errors import ConfigError, TableTaken, TransactionError
from txsaga.flows.ballot import Result
from txsaga.lake import gates
from txsaga.lake.gates import Gate, Judged, Subject
from txsaga.lake.home_rows import RowsMode, RowsWay
from txsaga.lake.table import (
    ROWS_EFFECT,
    TABLE_EFFECT,
    BranchStart,
    BranchWriter,
    Effect,
    Swap,
    TableName,
    TablePlace,
    TableStaging,
    TableWrite,
    TransactionToken,
    WriteMode,
)
from txsaga.messages.tx_records import TxRecords

if TYPE_CHECKING:
    from txsaga.messages.ledger_store import Ledger


class HomeTable:
    """A table of the home database, for writing in a transaction."""

    def __init__(self, writes: TableWrites, name: str) -> None:
        self._writes, self.name = writes, name

    def insert(self, rows: object) -> int:
        """Add rows, a Spark DataFrame or an Arrow table or reader; return how many."""
        return self._writes.put(self.name, rows, RowsWay(RowsMode.INSERT))

    def attach(self, rows: object, partition: str, bounds: str) -> int:
        """Add rows as a partition with this name and these bounds (SQL: `FOR VALUES …`); return how many."""
        return self._writes.put(self.name, rows, RowsWay(RowsMode.ATTACH, partition, bounds))

    def replace(self, rows: object) -> int:
        """Replace the whole table by a new one with these rows; return how many."""
        return self._writes.put(self.name, rows, RowsWay(RowsMode.REPLACE))


TABLE = "{table}"
ADDS = re.compile(r"(?:\s|--[^\r\n]*[\r\n]|/\*(?:(?!\*/).)*\*/)*INSERT\s+INTO\b", re.IGNORECASE | re.DOTALL)
"""A statement that adds rows, with any leading comments. All others count as looking for rows: a MERGE that found none
adds rows too, and its branch does not show that it looked."""
ENTER = 'use it as `with tx.table("…").branch(spark) as ledger:`, and write inside that block'


class TableBranch:
    """A branch of one table, as a context manager."""

    def __init__(
        self, writes: TableWrites, name: TableName, writer: BranchWriter | None, *, gate: Gate | None, rebase: bool
    ) -> None:
        self._writes, self._writer, self._gate, self._rebase = writes, writer, gate, rebase
        self._begun: tuple[BranchStart, TablePlace] | None = None
        self._looked = False
        self.name = name
        self.write: TableWrite | None = None

    @property
    def branch(self) -> str:
        """The name of the branch, for engines that take it separately."""
        return self._start.branch

    @property
    def identifier(self) -> str:
        """Spark's name of the branch: for SQL, and for `DataFrame.writeTo`."""
        return self._of_spark.identifier(self._start)

    def sql(self, statement: str, args: object = None) -> Any:  # what Spark returns
        """Run a Spark statement, with the branch in place of {table}."""
        if TABLE not in statement:
            raise ConfigError(f"this statement names no {TABLE}, where the branch belongs: MERGE INTO {TABLE} t …")
        writer, spoken = self._of_spark, statement.replace(TABLE, self.identifier)
        self._looked = self._looked or ADDS.match(statement) is None
        return writer.sql(spoken, args)

    def __enter__(self) -> Self:
        if self._begun is not None or self.write is not None:
            raise TransactionError(f"this branch of {self.name} was begun already; ask for another: branch(spark)")
        if self._gate is not None:
            gates.start(self._gate)
        if self._writer is not None:
            self._writer.require_able(self.name)
        self._begun = self._writes.begin_branch(self.name)
        if self._writer is not None:
            with on_failure(self._leave):
                self._writer.open(self._begun[0])
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Record what the branch contains; after an error nothing of it counts."""
        assert self._begun is not None
        start, place = self._begun
        self._leave()
        if error is None:
            self.write = self._writes.record_branch(
                start, place, self._writer, rebase=self._rebase, looked=self._looked, gate=self._gate
            )

    def _leave(self) -> None:
        assert self._begun is not None
        self._writes.end_branch(self._begun[0])
        self._begun = None
        if self._writer is not None:
            self._writer.close()

    @property
    def _start(self) -> BranchStart:
        if self._begun is None:
            raise TransactionError(f"a branch of {self.name} exists only inside its block; {ENTER}")
        return self._begun[0]

    @property
    def _of_spark(self) -> BranchWriter:
        if self._writer is None:
            raise ConfigError("this branch was begun without Spark; give the session: branch(spark)")
        return self._writer


CREATED = "a table is created before anything is written to it, and once"


class TableWrites:
    """The writes of one contribution to a transaction into tables."""

    def __init__(self, kernel: Kernel, part: int, life: Callable[[str], TxRecord]) -> None:
        self._kernel, self._part = kernel, part
        self._life = WeakMethod(life)  # weak: its tables must not keep an unused transaction alive
        self._numbers, self._created = count(1), dict[TableName, str]()
        self._seen: dict[TableName, int | None] = {}
        self._branched = set[TableName]()
        self.may_conflict = False
        self.recorded: list[Effect] = []

    def life(self, what: str) -> TxRecord:
        """Return the transaction's record."""
        life = self._life()
        if life is None:
            raise TransactionError(f"can't {what}: its transaction has ended")
        return life(what)

    def table(self, said: str) -> Table:
        """Return a table by its name."""
        return Table(self, self._kernel.tables.name(said))

    def rows(self, said: str) -> HomeTable:
        """Return a table of the home database by its name."""
        check_kind(said, str, "the table", "give its name, with its schema")
        return HomeTable(self, said)

    def create(
        self, name: TableName, columns: object, partitions: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        """Write the first metadata of a table."""
        life = self.life("create a table")
        if name in self._created:
            raise TransactionError(f"table {name} is created in this transaction already; {CREATED}")
        with self._kernel.announce.around(facts.Staging, life.txid, about=str(name)):
            write = self._kernel.tables.lake.create(name, columns, partitions=partitions, properties=properties)
        self._record(life, name, write)
        self._created[name], self._seen[name] = str(write.created), None
        self.may_conflict = True

    def take(self, name: TableName, where: Mapping[str, object] | None) -> None:
        """Reserve what an overwrite replaces, and remember the snapshot that it is based on."""
        life, lake = self.life("overwrite a table"), self._kernel.tables.lake
        created = self._created.get(name)
        if name not in self._seen:
            self._seen[name] = lake.base(name, created)
        parts = lake.parts(name, created, where)
        with self._recording(life, name) as ledger:
            holder = ledger.reserve_table(life.txid, name, parts)
        if holder is not None:
            raise TableTaken(f"transaction {holder} overwrites the same of table {name}; try again when it is decided")
        self.may_conflict = True

    def write(
        self,
        name: TableName,
        rows: object,
        mode: WriteMode,
        where: Mapping[str, object] | None,
        properties: Mapping[str, str],
        gate: Gate | None = None,
    ) -> TableWrite | None:
        """Stage rows, let a gate judge them, and store the record of both."""
        self.admit(name, mode)
        life, created = self.life("write to a table"), self._created.get(name)
        if gate is not None:
            gates.start(gate)
        if name in self._branched:
            raise TransactionError(f"table {name} is written on a branch; write to that, or when its block is left")
        base = self._seen.get(name) if mode is WriteMode.OVERWRITE else None
        place = self._place(life)
        staging = TableStaging(mode=mode, created=created, where=where, base=base, properties=properties)
        with self._kernel.announce.around(facts.Staging, life.txid, about=str(name)):
            write = self._kernel.tables.lake.stage(name, rows, place, staging)
        self._judge(life, name, place, write, gate)
        return write

    def token(self) -> str:
        """Return the secret text by which other programs join: what they commit and send becomes part of this."""
        life, self.may_conflict = self.life("be joined"), True
        return str(TransactionToken.sealed(self._identity(life), life.token, life.owner, self._part, life.owner, 0))

    def branch_writer(self, session: object) -> BranchWriter | None:
        """Return the branch writer of a session."""
        return None if session is None else self._kernel.tables.branch_writer(session)

    def begin_branch(self, name: TableName) -> tuple[BranchStart, TablePlace]:
        """Begin a branch of a table, which must be this transaction's first write to it."""
        life = self.life("write to a table")
        if name in self._branched or any(write.name == name for write in self.known(life)):
            raise TransactionError(
                f"transaction {life.txid} wrote to table {name} before, which a branch would not have; "
                "begin the branch first, and do everything on that one"
            )
        place = self._place(life)

        def move(swap: Swap) -> None:
            with self._kernel.store.ledgers.open() as ledger:
                self.own(ledger, life)
                ledger.swap([swap])

        with self._kernel.announce.around(facts.Branching, life.txid, about=str(name)):
            start = self._kernel.tables.lake.branches.begin(name, place, move)
        self._branched.add(name)
        self.may_conflict = True
        return start, place

    def end_branch(self, start: BranchStart) -> None:
        """Stop writing to a branch."""
        self._branched.discard(start.table)

    def record_branch(
        self,
        start: BranchStart,
        place: TablePlace,
        writer: BranchWriter | None,
        *,
        rebase: bool,
        looked: bool,
        gate: Gate | None,
    ) -> TableWrite | None:
        """Store the record of what a branch contains; return None if nothing was written to it."""
        life = self.life("write to a table")
        with self._kernel.announce.around(facts.Staging, life.txid, about=str(start.table)):
            application = None if writer is None else writer.application
            branches = self._kernel.tables.lake.branches
            write = branches.recorded(start, place, rebase=rebase, looked=looked, application=application)
        if write is not None:
            self.admit(write.name, write.mode)
        self._judge(life, start.table, place, write, gate)
        return write

    def admit(self, name: TableName, mode: WriteMode) -> None:
        """Check a write before it is staged, or what a branch contains before it is recorded."""

    def known(self, life: TxRecord) -> Sequence[TableWrite]:
        """Return the table writes so far."""
        return [TableWrite.read(each.payload) for each in self.recorded if each.kind == TABLE_EFFECT]

    def _judge(
        self, life: TxRecord, name: TableName, place: TablePlace, write: TableWrite | None, gate: Gate | None
    ) -> None:
        lake, found = self._kernel.tables.lake, None
        if write is not None and write.mode is WriteMode.OVERWRITE:
            lake.publisher.require_unmoved(write)
        if gate is not None:
            subject = Subject(about=str(name), count=0) if write is None else lake.subject(write)
            found = gates.judged(gate, f"{name} {place.part}.{place.attempt}.{place.number}", subject)
        if write is not None or found is not None:
            self._record(life, name, write, found)

    def _place(self, life: TxRecord) -> TablePlace:
        return TablePlace(self._identity(life), self._part, self.attempt(life), next(self._numbers))

    def put(self, table: str, rows: object, way: RowsWay) -> int:
        """Stage rows for a table of the home database, and store the record; return how many."""
        life = self.life("write rows")
        with self._kernel.announce.around(facts.Staging, life.txid, about=table):
            write = self._kernel.rows.stage(table, rows, self._identity(life), way)
        self.file(life, table, Effect(ROWS_EFFECT, self._part, life.owner, write.payload()))
        self.may_conflict = True
        return write.rows

    def file(self, life: TxRecord, about: object, effect: Effect) -> None:
        """Store the effect of a staged write."""
        with self._recording(life, about) as ledger:
            ledger.keep(life.txid, [effect])
        self.recorded.append(effect)

    def check(self, about: str, rows: object, gate: Gate) -> Judged:
        """Let a gate judge rows that are written elsewhere, or are a `Subject`, and store its vote."""
        gates.start(gate)
        life = self.life("check rows")
        ballot = f"{about} {self._part}.{self.attempt(life)}.{next(self._numbers)}"
        subject = rows if isinstance(rows, Subject) else Subject(about=about, rows=rows)
        found = gates.judged(gate, ballot, subject)
        self._record(life, about, None, found)
        return found

    def attempt(self, life: TxRecord) -> int:
        """Return the number of the attempt, for naming what it stages."""
        return life.owner

    def own(self, ledger: Ledger, life: TxRecord) -> None:
        """Lock the transaction's record, and make sure that it is still ours and open."""
        TxRecords(self._kernel).own(ledger, life)

    def _identity(self, life: TxRecord) -> str:
        return self._kernel.store.registry.identity.transaction(life.txid)

    def _record(self, life: TxRecord, about: object, write: TableWrite | None, found: Judged | None = None) -> None:
        effect = None if write is None else Effect(TABLE_EFFECT, self._part, life.owner, write.payload())
        with self._recording(life, about) as ledger:
            if effect is not None:
                ledger.keep(life.txid, [effect])
            if found is not None:
                gates.vote(ledger, life.txid, found)
        if effect is not None:
            self.recorded.append(effect)
        if found is not None:  # a caller that ignores a no can't do local work that can't be undone any more
            self.may_conflict = self.may_conflict or found.result is not Result.CARRIED
            gates.require_passed(found, life.txid)

    @contextmanager
    def _recording(self, life: TxRecord, about: object) -> Iterator[Ledger]:
        with (
            self._kernel.announce.around(facts.Filing, life.txid, about=str(about)),
            self._kernel.store.ledgers.open() as ledger,
        ):
            self.own(ledger, life)
            yield ledger


class Table:
    """One table, for writing in a transaction."""

    def __init__(self, writes: TableWrites, name: TableName) -> None:
        self._writes, self.name = writes, name

    def create(
        self, columns: object, *, partitions: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> Table:
        """Create the table with the transaction: it is invisible until the decision."""
        self._writes.create(self.name, columns, partitions, properties or {})
        return self

    def append(
        self, rows: object, *, properties: Mapping[str, str] | None = None, gate: Gate | None = None
    ) -> TableWrite | None:
        """Add rows: an Arrow table or reader, or a Spark DataFrame; return None if there are none.

        Raise `NotCarried` if a gate votes no: the transaction can then only roll back.
        """
        return self._writes.write(self.name, rows, WriteMode.APPEND, None, properties or {}, gate)

    def taking(self, where: Mapping[str, object] | None = None) -> Table:
        """Reserve early what will be overwritten: no other one can begin to, and what is there now is replaced."""
        self._writes.take(self.name, where)
        return self

    def overwrite(
        self,
        rows: object,
        *,
        where: Mapping[str, object] | None = None,
        properties: Mapping[str, str] | None = None,
        gate: Gate | None = None,
    ) -> TableWrite | None:
        """Replace whole partitions, or everything, by rows.

        Raise `TableMoved`, here or at the decision, if another writer changed them meanwhile, and `NotCarried` if a
        gate votes no to the rows.
        """
        if where is not None:
            check_kind(where, Mapping, "where", "give values by partition, like {'day': day}")
        self._writes.take(self.name, where)
        return self._writes.write(self.name, rows, WriteMode.OVERWRITE, where, properties or {}, gate)

    def branch(self, spark: object = None, *, gate: Gate | None = None, rebase: bool = False) -> TableBranch:
        """Return a branch for any Spark statement: `with tx.table(…).branch(spark) as ledger:`.

        Its contents at the end of its block are published unchanged. If the table has changed meanwhile, appends go
        on top of that, and with `rebase` also changes to other partitions. Otherwise `TableMoved` is raised.
        """
        return TableBranch(self._writes, self.name, self._writes.branch_writer(spark), gate=gate, rebase=rebase)
