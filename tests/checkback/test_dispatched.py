"""What has offsets is parked, if its decision is gone: check-back rolls nothing back that readers have seen."""

import pytest

from tests.contracts.samples import (
    COMMIT,
    add,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    opened,
    prepared,
    published,
    row,
    settle,
    swept,
)
from tests.scene.stored import Stored
from txsaga.checkback.doubts_store import DISPATCHED as PARKED
from txsaga.core.lifecycle import TxState
from txsaga.store.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.req("RMQ-70"), pytest.mark.core]


def test_a_dispatched_message_whose_decision_is_gone_is_parked(store: Store, stored: Stored) -> None:
    group, queues = new_group(store), new_queues(store, count=3)
    ends = [prepared(store, group, row(queues[n % 3], str(n), f"{n}b")) for n in range(20)]
    lost, undecided = ends[3::4], ends[2::4]
    for end in ends:
        if end not in undecided:
            decided(store, end_of(end, COMMIT))
            drain(store)
    stored.rows("DELETE FROM op WHERE txid = ANY (:txids)", txids=[end.txid for end in lost])
    assert [doubt.txid for doubt in swept(store, group)] == [end.txid for end in undecided]


def test_it_is_found_where_the_queue_was_long_before(store: Store, stored: Stored) -> None:
    group, (qid,) = new_group(store), new_queues(store)
    published(store, group, *(row(qid, str(n), chunk=n) for n in range(300)))
    drain(store)
    stored.rows("UPDATE log SET at = at - interval '1 day'")
    half = prepared(store, group, row(qid, "late"))
    decided(store, end_of(half, COMMIT))
    drain(store)
    published(store, group, *(row(qid, str(n), chunk=n) for n in range(300)))
    drain(store)
    stored.rows("DELETE FROM op WHERE txid = :txid", txid=half.txid)
    assert swept(store, group) == []


@pytest.mark.parametrize("state", [TxState.ACTIVE, TxState.SEALED, TxState.PREPARED])
def test_a_keyed_one_is_parked_whatever_its_row_says(store: Store, stored: Stored, state: TxState) -> None:
    group, (qid,) = new_group(store), new_queues(store)
    life = opened(store, group)
    add(store, life, 1, row(qid, "a"))
    settle(store, life, COMMIT)
    drain(store)
    stored.rows("DELETE FROM op")
    stored.rows("UPDATE tx SET state = :state", state=state.value)
    stored.let_pass(3600)
    assert swept(store, group) == []
    assert PARKED in stored.value("SELECT remarks -> -1 ->> 'why' FROM doubt WHERE parked IS NOT NULL")


def test_a_stray_row_at_the_head_parks_nothing(store: Store, stored: Stored) -> None:
    group, (qid,) = new_group(store), new_queues(store)
    half = prepared(store, group, row(qid, "a"))
    stored.rows("INSERT INTO log (qid, base, n, txid, part, attempt, chunk) SELECT qid, 0, 1, txid, 0, 0, 0 FROM half")
    assert [doubt.txid for doubt in swept(store, group)] == [half.txid]


def test_only_the_newest_messages_are_looked_through(
    store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.checkback.doubts_store.RECENT", 10)
    group, (qid,) = new_group(store), new_queues(store)
    halves = [prepared(store, group, row(qid, str(n))) for n in range(3)]
    for half, behind in zip(halves, (8, 2, 1), strict=True):
        decided(store, end_of(half, COMMIT))
        drain(store)
        published(store, group, *(row(qid, str(n), chunk=n) for n in range(behind)))
        drain(store)
    stored.rows("DELETE FROM op WHERE txid = ANY (:txids)", txids=[half.txid for half in halves])
    assert [doubt.txid for doubt in swept(store, group)] == [halves[0].txid]


def test_one_that_was_listed_before_it_was_decided_is_parked(store: Store, stored: Stored) -> None:
    group, (qid,) = new_group(store), new_queues(store)
    half = prepared(store, group, row(qid, "a"))
    assert [doubt.txid for doubt in swept(store, group)] == [half.txid]
    decided(store, end_of(half, COMMIT))
    drain(store)
    stored.rows("DELETE FROM op WHERE txid = :txid", txid=half.txid)
    assert store.doubts.due(10) == []
    assert PARKED in stored.value("SELECT remarks -> -1 ->> 'why' FROM doubt WHERE parked IS NOT NULL")
