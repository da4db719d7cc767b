"""
Keyed transactions on PostgreSQL: every write first locks the `tx` row of its transaction.

Adding locks it FOR SHARE, the decision FOR UPDATE: a zombie that checked "open" before the decision can't
write after it (R3). Without the lock its halves would be acknowledged and never delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Connection,
    Double,
    Engine,
    String,
    TextClause,
    Uuid,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.elements import ColumnElement

from txsaga.checkback.questions import kept
from txsaga.consume import claim_end_statements as claim_ends
from txsaga.consume import groups_store as intents
from txsaga.consume.claim import Claim
from txsaga.consume.dead_letter import TAKEN_OVER
from txsaga.core.decision import Decision
from txsaga.core.identity import StoreId
from txsaga.core.lifecycle import TRANSACTION, TxEvent, TxState
from txsaga.core.records import FRAMES, Intent, LateSlot, Row, TxRecord
from txsaga.errors import DecidedOtherwise, TransactionsRejected, UnknownTransaction
from txsaga.flows import ballots_store as ballots
from txsaga.flows import work_store as work
from txsaga.flows.ballot import Ballot, CastVote, Polled
from txsaga.flows.flows_store import FlowLedger, life_of
from txsaga.flows.requests import BranchVote
from txsaga.flows.step import StepEvent
from txsaga.lake.effects_store import TableLedger
from txsaga.messages.hot_statements import TOKEN, TOKEN_ASKED
from txsaga.store import schema, sql_files
from txsaga.store.connection import transaction

SQL = sql_files.read("messages/sql/ledger.sql")
DECIDE = sql_files.read("store/sql/decision.sql")["one"]

tx, half, part, effect = schema.tx, schema.half, schema.part, schema.effect
cursor, intent, op, store = schema.cursor, schema.intent, schema.op, schema.store


class Ledgers:
    """Opens database transactions on the rows of keyed transactions."""

    def __init__(self, engine: Engine, namespace: str, *, owner: bool = True) -> None:
        self._engine, self._schema = engine, f'"{namespace}"'
        token, unlist = (TOKEN, SQL["unlist"]) if owner else (TOKEN_ASKED, SQL["call_unlist"])
        self._unlist, self._of_flows = text(unlist.format(s=self._schema)), (self._schema, token, unlist)
        self._token: ColumnElement[Any] = literal_column(
            token.format(s=self._schema, group="tx.pgroup", txid="tx.txid")
        )

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        """Open a database transaction; `OutcomeUnknown` if its COMMIT was not answered."""
        with transaction(self._engine) as connection:
            ledger = Ledger(connection, self._schema, self._token, self._unlist)
            ledger.flows = FlowLedger(connection, self._of_flows)
            yield ledger


class Ledger(TableLedger):
    """The rows of keyed transactions inside one open database transaction.

    A ledger never commits by itself: the end of its `with` block commits, and an exception rolls everything back.
    """

    flows: FlowLedger

    def __init__(self, connection: Connection, schema: str, token: ColumnElement[Any], unlist: TextClause) -> None:
        self._connection, self._schema, self._unlist = connection, schema, unlist
        self._lives = select(tx, token.label("token"))
        self._taking = ~select(store.c.rejecting).scalar_subquery()

    def latest(self, group: int, key: str, *, before: int | None = None) -> TxRecord | None:
        """Return the newest record of a key, or the newest before an epoch, locked until the block ends."""
        query = self._lives.where(tx.c.pgroup == group, tx.c.key == key)
        if before is not None:
            query = query.where(tx.c.epoch < before)
        return self._life(query.order_by(tx.c.epoch.desc()).limit(1).with_for_update(of=tx))

    def sees(self, group: int | None = None) -> bool:
        """Return whether this login sees a group's transactions, or all; if not, one it does not find may exist."""
        mine = f"{self._schema}.everywhere() OR {self._schema}.mine(CAST(:group AS int4))"
        shown = text(f"SELECT NOT row_security_active('{self._schema}.tx') OR {mine}")
        return bool(self._connection.execute(shown, {"group": group}).scalar())

    def lock(self, txid: int) -> TxRecord | None:
        """Return a record, locked exclusively until the block ends."""
        return self._life(self._lives.where(tx.c.txid == txid).with_for_update(of=tx))

    def share(self, txid: int) -> TxRecord | None:
        """Return a record, locked against its decision until the block ends (R3)."""
        return self._life(self._lives.where(tx.c.txid == txid).with_for_update(of=tx, read=True))

    def create(
        self,
        group: int,
        key: str | None,
        epoch: int,
        run: str | None = None,
        coordinator: UUID | None = None,
        lease: timedelta | None = None,
    ) -> TxRecord | None:
        """Open a record with a new number; None if another process opened that epoch first.

        With a coordinator it is a branch of that store's transaction, and its key is the branch's name. With a lease it
        is a flow: it has no single owner, and stays open that long without a sign of life from any process.
        """
        fresh: dict[str, ColumnElement[Any]] = {
            "txid": schema.tx_seq.next_value(),
            "pgroup": literal(group),
            "key": literal(key, String),
            "epoch": literal(epoch),
            "state": literal(TxState.ACTIVE.value),
            "run": literal(run, String),
            "coordinator": literal(coordinator, Uuid),
            "lease": literal(lease and lease.total_seconds(), Double),
        }
        statement = (
            upsert(tx)
            .from_select(list(fresh), select(*fresh.values()).where(self._taking))
            .on_conflict_do_nothing(index_elements=["pgroup", "key", "epoch"])
            .returning(tx.c.txid)
        )
        txid = self._connection.execute(statement).scalar()
        if txid is None:
            self._refuse_if_rejecting()
            return None
        return self.lock(txid)

    def release(self, txid: int) -> None:
        """Detach a locked branch from its coordinator."""
        self._connection.execute(update(tx).where(tx.c.txid == txid).values(coordinator=None))

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner number of a locked, ACTIVE record and return the record.

        Consumed offsets and late-body slots of the previous owner are dropped: that attempt does not count (R4).
        """
        statement = (
            update(tx)
            .where(tx.c.txid == txid, tx.c.state == TxState.ACTIVE.value, self._taking)
            .values(owner=tx.c.owner + 1)
        )
        if self._count(statement) != 1:
            self._refuse_if_rejecting()
            raise UnknownTransaction(f"transaction {txid} is not open")
        self._connection.execute(delete(effect).where(effect.c.txid == txid, effect.c.kind == "late"))
        frames = update(part).where(part.c.txid == txid, part.c.part >= FRAMES)
        self._connection.execute(frames.values(attempt=0))  # no attempt's
        bound, claims = self._consumed(txid)
        if bound:
            self._connection.execute(delete(intent).where(intent.c.txid == txid))
        if claims:
            claim_ends.decided(self._connection, self._schema, txid, why=TAKEN_OVER)
        self.touch(txid)
        life = self.lock(txid)
        assert life is not None
        return life

    def touch(self, txid: int) -> None:
        """Record that the owner of a locked record is alive, which removes it from the doubts."""
        self._connection.execute(update(tx).where(tx.c.txid == txid).values(touched=func.clock_timestamp()))
        self._connection.execute(self._unlist, {"txid": txid})

    def move(self, txid: int, event: TxEvent, *, evidence: int | None = None) -> None:
        """Change the state of a record; `IllegalTransition` if the lifecycle table forbids it."""
        allowed = TRANSACTION.sources(event)
        (target,) = {TRANSACTION.moves[state, event] for state in allowed}
        values: dict[str, object] = {"state": target.value, "touched": func.clock_timestamp()}
        if evidence is not None:
            values["evidence"] = evidence
        statement = update(tx).where(tx.c.txid == txid, tx.c.state.in_([state.value for state in allowed]))
        if self._count(statement.values(**values)) != 1:
            life = self.lock(txid)
            if life is None:
                raise UnknownTransaction(f"transaction {txid} is not in this store")
            TRANSACTION.after(life.state, event)

    def add(self, life: TxRecord, part: int, rows: Sequence[Row]) -> None:
        """Add halves under (part, the record's owner)."""
        self._require_undecided(life.txid)
        common = {"txid": life.txid, "pgroup": life.group, "part": part, "attempt": life.owner, "keyed": True}
        values = [{**common, "qid": row.qid, "chunk": row.chunk, "n": row.count, "body": row.body} for row in rows]
        self._connection.execute(insert(half), values)

    def win(self, txid: int, part: int, attempt: int) -> None:
        """Record which attempt of a part counts (R4)."""
        statement = upsert(schema.part).values(txid=txid, part=part, attempt=attempt)
        self._connection.execute(
            statement.on_conflict_do_update(index_elements=["txid", "part"], set_={"attempt": attempt})
        )

    def copy(self, txid: int, life: TxRecord) -> int:
        """Copy another transaction's counting halves (R4) to a record whose owner wins their parts; return how many."""
        sql = text(SQL["copy"].format(s=self._schema))
        values = {"old": txid, "new": life.txid, "group": life.group, "owner": life.owner}
        return int(self._connection.execute(sql, values).scalar_one())

    def tie(self, txid: int, replay: int) -> bool:
        """Link a transaction to its replay, permanently; False if it is already linked to another."""
        rows = self._connection.execute(text(SQL["tie"].format(s=self._schema)), {"old": txid, "new": replay})
        return len(rows.all()) == 2

    def replay_of(self, txid: int) -> int | None:
        """Return the transaction that replays this one."""
        sql = text(SQL["replay_of"].format(s=self._schema))
        found: int | None = self._connection.execute(sql, {"txid": txid}).scalar()
        return found

    def name(self, life: TxRecord, resources: Sequence[int], *, aux: bool = False) -> Sequence[int]:
        """Record a branch for each resource, in this owner's attempt; return their numbers, the same in each attempt.

        A unit of an auxiliary lane gets a new number each time.
        """
        return work.name(self._connection, life, resources, aux=aux)

    def record_votes(self, txid: int, votes: Sequence[BranchVote]) -> None:
        """Record what branches voted, in the ledger block of the decision that names them."""
        work.record_votes(self._connection, txid, votes)

    def call(self, txid: int, ballot: Ballot) -> None:
        """Open a ballot on a locked record; repeating it changes nothing, a different one of its name is refused."""
        ballots.call(self._connection, txid, ballot)

    def cast(self, txid: int, ballot: str, cast: CastVote) -> bool:
        """Cast a vote on a locked record; False if that voter already voted."""
        return ballots.cast(self._connection, txid, ballot, cast)

    def ballots(self, txid: int) -> Sequence[Polled]:
        """Return the ballots of a transaction and their votes."""
        return ballots.polled(self._connection, txid)

    def forget(self, txid: int, number: int, attempt: int) -> bool:
        """Delete a branch whose outcome contradicts its decision; return whether it was one."""
        return work.forget(self._connection, txid, number, attempt)

    def has_open_saga(self, txid: int) -> bool:
        """Return whether a rolled back transaction still has something to undo (R6)."""
        return work.has_open_saga(self._connection, self._schema, txid)

    def move_step(self, txid: int, number: int, event: StepEvent, why: str) -> bool:
        """Change the state of a step by hand and let its saga continue at once; False if the table forbids it."""
        return work.move(self._connection, self._schema, txid, number, event, kept(why))

    def reserve(self, slot: LateSlot) -> None:
        """Reserve a slot for a late body."""
        payload = {
            "qid": slot.qid,
            "key": slot.key,
            "tag": slot.tag,
            "headers": dict(slot.headers) if slot.headers else None,
            "ordering_key": slot.ordering_key,
        }
        self._connection.execute(insert(effect).values(txid=slot.txid, seq=slot.slot, kind="late", payload=payload))

    def slots(self, txid: int) -> Sequence[LateSlot]:
        """Return the slots reserved for late bodies."""
        query = select(effect).where(effect.c.txid == txid, effect.c.kind == "late").order_by(effect.c.seq)
        rows = self._connection.execute(query).all()
        return [LateSlot(txid=txid, slot=row.seq, **row.payload) for row in rows]

    def intend(self, intent: Intent, member: str) -> None:
        """Bind offsets of a claimed queue to a transaction; repeating the last ones is not an error.

        `LeaseLost` if the claim is not the member's, or does not start at the cursor's offset.
        """
        self._require_undecided(intent.txid)
        intents.bind(self._connection, intent, member)

    def bind(self, txid: int, claim: Claim, retry: timedelta) -> None:
        """Bind the open messages of a claim to a transaction: only its decision ends the claim on them.

        COMMIT acknowledges them for their group; ROLLBACK redelivers them after `retry`, counted as an attempt. If
        any of them is lost, raise `ClaimLost` and bind none.
        """
        self._require_undecided(txid)
        claim_ends.bind(self._connection, self._schema, claim, txid, retry)

    def apply_intents(self, txid: int, decision: Decision, *, why: str) -> None:
        """Move the cursors of a transaction's intents (on COMMIT), end its intents and the claims bound to it.

        A redelivered message keeps the reason of the rollback in its history.
        `EffectConflict` if a cursor is not at the start of its intent.
        """
        bound, claims = self._consumed(txid)
        if bound:
            intents.apply(self._connection, txid, decision)
        if claims:
            cause = why if decision is Decision.ROLLBACK else None
            claim_ends.decided(self._connection, self._schema, txid, why=cause)

    def write_op(self, txid: int, decision: Decision, *, from_check: bool, keyed: bool = True) -> bool:
        """Write a decision and remove the transaction from the list of doubts; False if it is already decided.

        Also for plain halves, if an audit row must be written with it; a keyed transaction must be locked.
        """
        values = {"txid": txid, "decision": int(decision), "keyed": keyed, "from_check": from_check}
        won = self._connection.execute(text(DECIDE.format(s=self._schema)), values).scalar() is not None
        self._connection.execute(self._unlist, {"txid": txid})
        return won

    def due(self, txid: int) -> bool:
        """Return whether a transaction is on the list of doubts and due for a check: no owner was active since."""
        doubt = schema.doubt.c
        now = func.clock_timestamp()
        waits = exists().where(tx.c.txid == txid, tx.c.touched + func.make_interval(0, 0, 0, 0, 0, 0, tx.c.lease) > now)
        listed = exists().where(doubt.txid == txid, doubt.parked.is_(None), doubt.check_at <= now, ~waits)
        return bool(self._connection.execute(select(listed)).scalar())

    def park(self, txid: int, why: str) -> None:
        """Stop checking a transaction; it stays listed, with the reason."""
        doubt = schema.doubt
        keyed = select(tx.c.txid, tx.c.pgroup, literal(True), literal(kept(why))).where(tx.c.txid == txid)
        plain = select(half.c.txid, half.c.pgroup, literal(False), literal(kept(why))).where(
            half.c.txid == txid, ~half.c.keyed
        )
        for source in (keyed, plain.limit(1)):
            statement = upsert(doubt).from_select(["txid", "pgroup", "keyed", "parked"], source)
            parking = statement.on_conflict_do_update(index_elements=["txid"], set_={"parked": kept(why)})
            self._connection.execute(parking)

    def resume(self, txid: int) -> bool:
        """Check a parked transaction again, with its checks counted from 0; False if it is not parked."""
        doubt = schema.doubt
        statement = update(doubt).where(doubt.c.txid == txid, doubt.c.parked.is_not(None))
        now = func.clock_timestamp()
        fresh = {"parked": None, "checks": 0, "check_at": now, "resumed": now}
        return self._count(statement.values(**fresh)) == 1

    def record(self, txid: int, event: str, *, who: str, why: str) -> None:
        """Write an audit row in the same transaction."""
        self._connection.execute(insert(schema.audit).values(txid=txid, what=event, who=who, why=why))

    def standing(self, txid: int) -> Decision | None:
        """Return the final decision of any transaction, plain or keyed."""
        decision = self._connection.execute(select(op.c.decision).where(op.c.txid == txid)).scalar()
        return None if decision is None else Decision(decision)

    def _consumed(self, txid: int) -> tuple[bool, bool]:
        """Return whether a transaction has intents, and claims; most don't, and producers may not touch the tables."""
        bound = [exists(column).where(column == txid) for column in (intent.c.txid, schema.claim.c.txid)]
        row = self._connection.execute(select(*bound)).one()
        return row[0], row[1]

    def _require_undecided(self, txid: int) -> None:
        """Lock a transaction against its decision; raise if it is decided (R3)."""
        life = self.share(txid)
        if life is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        if life.state in TRANSACTION.final():
            raise DecidedOtherwise(txid, "COMMIT" if life.state is TxState.COMMITTED else "ROLLBACK")

    def _refuse_if_rejecting(self) -> None:
        row = self._connection.execute(select(store.c.uuid, store.c.incarnation, store.c.rejecting)).one()
        if row.rejecting:
            raise TransactionsRejected(str(StoreId(row.uuid, row.incarnation)))

    def _life(self, query: Any) -> TxRecord | None:
        row = self._connection.execute(query).one_or_none()
        return None if row is None else life_of(row)

    def _count(self, statement: Any) -> int:
        return self._connection.execute(statement).rowcount
