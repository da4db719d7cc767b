"""
What the contract suites store and read: short words over the ports, nothing that only one store has.

They raise what the store answered, so that a test that expects no error need not look for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from threading import Thread
from typing import TypeVar

from txsaga.core.chunk import BODY, Chunk
from txsaga.core.decision import Decision
from txsaga.core.layout import lay_out_columns
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import (
    ClaimedQueue,
    DecisionOutcome,
    Doubt,
    End,
    Half,
    Intent,
    LogEntry,
    Receipt,
    Row,
    TxRecord,
)
from txsaga.core.topic import TopicType
from txsaga.errors import TxSagaError
from txsaga.messages.ledger_store import Ledger
from txsaga.store.store import Store

COMMIT, ROLLBACK = Decision.COMMIT, Decision.ROLLBACK
LONG = timedelta(hours=1)
A_WHILE, PATIENCE = 0.2, 30.0
"""Seconds: for what must not happen, and for what must."""

Answer = TypeVar("Answer")


def new_queues(store: Store, name: str = "orders", count: int = 1) -> tuple[int, ...]:
    """Create a topic for transactions and return its queues."""
    return store.registry.create_topic(name, TopicType.TRANSACTION, count).qids


def new_group(store: Store, name: str = "shop") -> int:
    """Register a producer group with a checker and return its number."""
    return store.registry.group(name, transactional=True).id


def row(qid: int, *texts: str, chunk: int = 0) -> Row:
    """Lay out a chunk with these bodies."""
    return Row(qid, chunk, len(texts), lay_out_columns([text.encode() for text in texts]))


def answered(answer: Answer | TxSagaError) -> Answer:
    """Return the answer to an item, or raise the error at its place."""
    if isinstance(answer, TxSagaError):
        raise answer
    return answer


def prepared(store: Store, group: int, *rows: Row, immunity: int | None = None) -> Receipt:
    """Store one half."""
    return answered(store.halves.write([Half(group, rows, immunity=immunity)], ()).receipts[0])


def published(store: Store, group: int, *rows: Row) -> Receipt:
    """Store one plain message."""
    return answered(store.halves.write([Half(group, rows, plain=True)], ()).receipts[0])


def end_of(receipt: Receipt, decision: Decision, *, from_check: bool = False) -> End:
    """Write the end of a half."""
    return End(receipt.txid, receipt.group, receipt.token, decision, from_check)


def decided(store: Store, end: End) -> DecisionOutcome:
    """Decide one half."""
    return answered(store.halves.write((), [end]).standings[0])


def one_by_one(call: Callable[[Sequence[Half]], Sequence[Answer]], halves: Sequence[Half]) -> list[object]:
    """Store a batch; one that failed as a whole has stored nothing and is stored item by item."""
    try:
        return list(call(halves))
    except TxSagaError as failed:
        return [failed] if len(halves) == 1 else [each for half in halves for each in one_by_one(call, [half])]


def opened(store: Store, group: int, key: str | None = "order-42", epoch: int = 1) -> TxRecord:
    """Open a keyed transaction."""
    with store.ledgers.open() as ledger:
        life = ledger.create(group, key, epoch)
    assert life is not None
    return life


def add(store: Store, life: TxRecord, part: int, *rows: Row, win: bool = True) -> None:
    """Add halves to a life as its owner does it, and name its attempt the winner."""
    with store.ledgers.open() as ledger:
        assert ledger.share(life.txid) is not None
        ledger.add(life, part, rows)
        if win:
            ledger.win(life.txid, part, life.owner)


def decide_life(ledger: Ledger, txid: int, decision: Decision, *, from_check: bool = False) -> None:
    """Decide a keyed transaction in an open block."""
    life = ledger.lock(txid)
    assert life is not None
    if decision is COMMIT and life.state is TxState.ACTIVE:
        ledger.move(txid, TxEvent.SEAL)
    ledger.move(txid, TxEvent.COMMIT if decision is COMMIT else TxEvent.ROLL_BACK)
    ledger.apply_intents(txid, decision, why="test")
    ledger.write_op(txid, decision, from_check=from_check)
    ledger.record(txid, "decided", who="contract", why="test")


def settle(store: Store, life: TxRecord, decision: Decision) -> None:
    """Decide a keyed transaction."""
    with store.ledgers.open() as ledger:
        decide_life(ledger, life.txid, decision)


def drain(store: Store, limit: int = 1000) -> None:
    """Tick until everything that was decided has its offsets."""
    while (ticked := store.log.tick(limit)) is None or ticked.more:
        pass


def entries(store: Store, qid: int) -> list[LogEntry]:
    """Tick, and return what a queue holds."""
    drain(store)
    return list(store.log.fetch(qid, 0, 1000))


def read(store: Store, qid: int) -> list[str]:
    """Tick, and return the bodies that a reader of the queue sees; its offsets must have no gap."""
    texts: list[str] = []
    for entry in entries(store, qid):
        assert entry.base == len(texts)
        bodies = Chunk(entry.body).column(BODY) or []
        assert len(bodies) == entry.count
        texts += [body.decode() for body in bodies if body is not None]
    assert store.log.bounds([qid])[qid].head == len(texts)
    return texts


def swept(store: Store, group: int) -> list[Doubt]:
    """Sweep whatever lies there, and return the list of doubts."""
    published(store, group, row(new_queues(store, "news")[0], "news"))
    drain(store)  # a store may look only at what its ticks have passed
    store.doubts.sweep(timedelta(0))
    return list(store.doubts.due(1000))


def topic_of(store: Store, qid: int) -> str:
    """Return the name of the topic of a queue."""
    return next(topic.name for topic in store.registry.topics() if qid in topic.qids)


def position(store: Store, qid: int, *, group: str = "billing") -> int:
    """Return how far a group has read the only queue of a topic."""
    topic = topic_of(store, qid)
    (lag,) = (each.lag for each in store.overview.readings() if (each.group, each.topic) == (group, topic))
    return store.log.bounds([qid])[qid].head - lag


def claimed(store: Store, qid: int, *, group: str = "billing", member: str = "anna") -> ClaimedQueue:
    """Take a queue for a live member."""
    store.queues.create_cursors(group, {qid: 0})
    store.queues.renew(group, member, [topic_of(store, qid)], LONG)
    claim = store.queues.acquire(group, member, qid)
    assert claim is not None
    return claim


def bound(store: Store, life: TxRecord, claim: ClaimedQueue, end: int, *, member: str = "anna") -> Intent:
    """Bind the next offsets of a claimed queue to a keyed transaction."""
    intent = Intent(
        group=claim.group,
        qid=claim.qid,
        start=claim.offset,
        end=end,
        epoch=claim.epoch,
        txid=life.txid,
        member=member,
    )
    with store.ledgers.open() as ledger:
        ledger.intend(intent, member)
    return intent


def start(work: Callable[[], Answer]) -> Future[Answer]:
    """Run work in a thread of its own."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as failed:  # noqa: BLE001  # it is raised where the result is asked for
            future.set_exception(failed)

    Thread(target=run, daemon=True).start()
    return future


def is_held(future: Future[Answer]) -> bool:
    """Tell whether work in another thread is kept waiting; only "no" is certain."""
    return not wait([future], A_WHILE).done


def park(store: Store, txid: int, why: str) -> None:
    """Take a transaction off the checks."""
    with store.ledgers.open() as ledger:
        ledger.park(txid, why)
