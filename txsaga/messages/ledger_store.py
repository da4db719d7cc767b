"""
Keyed transactions on PostgreSQL: every write first locks the `tx` row of its transaction.

Adding locks it FOR SHARE, the decision FOR UPDATE: a zombie that checked "open" before the decision can't
write after it (R3). Without the lock its halves would be acknowledged and never delivered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine, text

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
from txsaga.flows.ballots_store import BallotLedger
from txsaga.flows.flows_store import FlowLedger, life_of
from txsaga.flows.work_store import BranchLedger
from txsaga.lake.effects_store import TableLedger
from txsaga.messages.hot_statements import TOKEN, TOKEN_ASKED
from txsaga.store import sql_files
from txsaga.store.connection import transaction

SQL = sql_files.read("messages/sql/ledger.sql")
DECIDE = sql_files.read("store/sql/decision.sql")["one"]


class Ledgers:
    """Opens database transactions on the rows of keyed transactions."""

    def __init__(self, engine: Engine, namespace: str, *, owner: bool = True) -> None:
        self._engine, self._schema = engine, f'"{namespace}"'
        self._token, self._unlist = (TOKEN, SQL["unlist"]) if owner else (TOKEN_ASKED, SQL["call_unlist"])

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        """Open a database transaction; `OutcomeUnknown` if its COMMIT was not answered."""
        with transaction(self._engine) as connection:
            ledger = Ledger(connection, self._schema, self._token, self._unlist)
            ledger.flows = FlowLedger(connection, (self._schema, self._token, self._unlist))
            yield ledger


class Ledger(TableLedger, BranchLedger, BallotLedger):
    """The rows of keyed transactions inside one open database transaction.

    A ledger never commits by itself: the end of its `with` block commits, and an exception rolls everything back.
    """

    flows: FlowLedger

    def __init__(self, connection: Connection, schema: str, token: str, unlist: str) -> None:
        super().__init__(connection, schema)
        self._token, self._unlist = token.format(s="{s}", group="tx.pgroup", txid="tx.txid"), unlist

    def latest(self, group: int, key: str, *, before: int | None = None, lock: bool = True) -> TxRecord | None:
        """Return the newest record of a key, or the newest before an epoch; by default locked until the block ends."""
        return self._read("latest" if lock else "newest", group=group, key=key, before=before)

    def sees(self, group: int | None = None) -> bool:
        """Return whether this login sees a group's transactions, or all; if not, one it does not find may exist."""
        return bool(self._run(SQL["sees"], group=group).scalar())

    def lock(self, txid: int) -> TxRecord | None:
        """Return a record, locked exclusively until the block ends."""
        return self._read("lock", txid=txid)

    def share(self, txid: int) -> TxRecord | None:
        """Return a record, locked against its decision until the block ends (R3)."""
        return self._read("share", txid=txid)

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
        seconds = None if lease is None else lease.total_seconds()
        fresh = {"group": group, "key": key, "epoch": epoch, "run": run, "coordinator": coordinator, "lease": seconds}
        life = self._read("create", **fresh)
        if life is None:
            self._refuse_if_rejecting()
        return life

    def release(self, txid: int) -> None:
        """Detach a locked branch from its coordinator."""
        self._run(SQL["release"], txid=txid)

    def take_over(self, txid: int) -> TxRecord:
        """Raise the owner number of a locked, ACTIVE record and return the record.

        Consumed offsets and late-body slots of the previous owner are dropped: that attempt does not count (R4).
        """
        if self._run(SQL["take_over"], txid=txid).rowcount != 1:
            self._refuse_if_rejecting()
            raise UnknownTransaction(f"transaction {txid} is not open")
        self._run(SQL["drop_slots"], txid=txid)
        self._run(SQL["drop_frames"], txid=txid, frames=FRAMES)
        bound, claims = self._consumed(txid)
        if bound:
            self._run(SQL["drop_intents"], txid=txid)
        if claims:
            claim_ends.decided(self._run, txid, why=TAKEN_OVER)
        self.touch(txid)
        life = self.lock(txid)
        assert life is not None
        return life

    def touch(self, txid: int) -> None:
        """Record that the owner of a locked record is alive, which removes it from the doubts."""
        self._run(SQL["touch"], txid=txid)
        self._run(self._unlist, txid=txid)

    def move(self, txid: int, event: TxEvent, *, evidence: int | None = None) -> None:
        """Change the state of a record; `IllegalTransition` if the lifecycle table forbids it."""
        allowed = TRANSACTION.sources(event)
        (target,) = {TRANSACTION.moves[state, event] for state in allowed}
        states = {"state": target.value, "allowed": [state.value for state in allowed]}
        if self._run(SQL["move"], txid=txid, evidence=evidence, **states).rowcount != 1:
            life = self.lock(txid)
            if life is None:
                raise UnknownTransaction(f"transaction {txid} is not in this store")
            TRANSACTION.after(life.state, event)

    def add(self, life: TxRecord, part: int, rows: Sequence[Row]) -> None:
        """Add halves under (part, the record's owner)."""
        self._require_undecided(life.txid)
        common = {"txid": life.txid, "pgroup": life.group, "part": part, "attempt": life.owner}
        values = [{**common, "qid": row.qid, "chunk": row.chunk, "n": row.count, "body": row.body} for row in rows]
        self._connection.execute(text(SQL["add"].format(s=self._schema)), values)

    def add_last(self, life: TxRecord, part: int, qid: int, body: bytes) -> None:
        """Add a half after all others of (part, the record's owner); the record is locked."""
        self._require_undecided(life.txid)
        place = {"txid": life.txid, "part": part, "attempt": life.owner, "qid": qid}
        self._run(SQL["add_last"], **place, pgroup=life.group, body=body)

    def win(self, txid: int, part: int, attempt: int) -> None:
        """Record which attempt of a part counts (R4)."""
        self._run(SQL["win"], txid=txid, part=part, attempt=attempt)

    def copy(self, txid: int, life: TxRecord) -> int:
        """Copy another transaction's counting halves (R4) to a record whose owner wins their parts; return how many."""
        return int(self._run(SQL["copy"], old=txid, new=life.txid, group=life.group, owner=life.owner).scalar_one())

    def tie(self, txid: int, replay: int) -> bool:
        """Link a transaction to its replay, permanently; False if it is already linked to another."""
        return len(self._run(SQL["tie"], old=txid, new=replay).all()) == 2

    def replay_of(self, txid: int) -> int | None:
        """Return the transaction that replays this one."""
        found: int | None = self._run(SQL["replay_of"], txid=txid).scalar()
        return found

    def reserve(self, slot: LateSlot) -> None:
        """Reserve a slot for a late body."""
        payload = {
            "qid": slot.qid,
            "key": slot.key,
            "tag": slot.tag,
            "headers": dict(slot.headers) if slot.headers else None,
            "ordering_key": slot.ordering_key,
        }
        self._run(SQL["reserve"], txid=slot.txid, slot=slot.slot, payload=json.dumps(payload))

    def slots(self, txid: int) -> Sequence[LateSlot]:
        """Return the slots reserved for late bodies."""
        return [LateSlot(txid=txid, slot=slot, **payload) for slot, payload in self._run(SQL["slots"], txid=txid)]

    def intend(self, intent: Intent, member: str) -> None:
        """Bind offsets of a claimed queue to a transaction; repeating the last ones is not an error.

        `LeaseLost` if the claim is not the member's, or does not start at the cursor's offset.
        """
        self._require_undecided(intent.txid)
        intents.bind(self._run, intent, member)

    def bind(self, txid: int, claim: Claim, retry: timedelta) -> None:
        """Bind the open messages of a claim to a transaction: only its decision ends the claim on them.

        COMMIT acknowledges them for their group; ROLLBACK redelivers them after `retry`, counted as an attempt. If
        any of them is lost, raise `ClaimLost` and bind none.
        """
        self._require_undecided(txid)
        claim_ends.bind(self._run, claim, txid, retry)

    def apply_intents(self, txid: int, decision: Decision, *, why: str) -> None:
        """Move the cursors of a transaction's intents (on COMMIT), end its intents and the claims bound to it.

        A redelivered message keeps the reason of the rollback in its history.
        `EffectConflict` if a cursor is not at the start of its intent.
        """
        bound, claims = self._consumed(txid)
        if bound:
            intents.apply(self._run, txid, decision)
            self._run(SQL["drop_intents"], txid=txid)
        if claims:
            cause = why if decision is Decision.ROLLBACK else None
            claim_ends.decided(self._run, txid, why=cause)

    def write_op(self, txid: int, decision: Decision, *, from_check: bool, keyed: bool = True) -> bool:
        """Write a decision and remove the transaction from the list of doubts; False if it is already decided.

        Also for plain halves, if an audit row must be written with it; a keyed transaction must be locked.
        """
        values = {"txid": txid, "decision": int(decision), "keyed": keyed, "from_check": from_check}
        won = self._run(DECIDE, **values).scalar() is not None
        self._run(self._unlist, txid=txid)
        return won

    def due(self, txid: int) -> bool:
        """Return whether a transaction is on the list of doubts and due for a check: no owner was active since."""
        return bool(self._run(SQL["due"], txid=txid).scalar())

    def park(self, txid: int, why: str) -> None:
        """Stop checking a transaction; it stays listed, with the reason."""
        self._run(SQL["park"], txid=txid, why=kept(why))

    def resume(self, txid: int) -> bool:
        """Check a parked transaction again, with its checks counted from 0; False if it is not parked."""
        return self._run(SQL["resume"], txid=txid).rowcount == 1

    def record(self, txid: int, event: str, *, who: str, why: str) -> None:
        """Write an audit row in the same transaction."""
        self._run(SQL["audit"], txid=txid, what=event, who=who, why=why)

    def standing(self, txid: int) -> Decision | None:
        """Return the final decision of any transaction, plain or keyed."""
        decision = self._run(SQL["decided"], txid=txid).scalar()
        return None if decision is None else Decision(decision)

    def _consumed(self, txid: int) -> tuple[bool, bool]:
        """Return whether a transaction has intents, and claims; most don't, and producers may not touch the tables."""
        bound, claims = self._run(SQL["consumed"], txid=txid).one()
        return bound, claims

    def _require_undecided(self, txid: int) -> None:
        """Lock a transaction against its decision; raise if it is decided (R3)."""
        life = self.share(txid)
        if life is None:
            raise UnknownTransaction(f"transaction {txid} is not in this store")
        if life.state in TRANSACTION.final():
            raise DecidedOtherwise(txid, "COMMIT" if life.state is TxState.COMMITTED else "ROLLBACK")

    def _refuse_if_rejecting(self) -> None:
        uuid, incarnation, rejecting = self._run(SQL["rejecting"]).one()
        if rejecting:
            raise TransactionsRejected(str(StoreId(uuid, incarnation)))

    def _read(self, name: str, **values: object) -> TxRecord | None:
        row = self._run(SQL[name].replace("{token}", self._token), **values).one_or_none()
        return None if row is None else life_of(row)
