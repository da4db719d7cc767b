"""What has offsets is not asked about again, though its decision is gone: nobody rolls back what readers have seen."""

from datetime import timedelta

import pytest

from tests.engine.stored import Stored
from txsaga.adapters.postgres.store import PostgresStore
from txsaga.testing.samples import (
    COMMIT,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    prepared,
    published,
    row,
    swept,
)

pytestmark = [pytest.mark.postgres, pytest.mark.req("RMQ-70")]


def test_a_dispatched_message_whose_decision_is_gone_is_not_put_on_the_list(
    store: PostgresStore, stored: Stored
) -> None:
    group, queues = new_group(store), new_queues(store, count=3)
    ends = [prepared(store, group, row(queues[n % 3], str(n), f"{n}b")) for n in range(20)]
    lost, undecided = ends[3::4], ends[2::4]
    for end in ends:
        if end not in undecided:
            decided(store, end_of(end, COMMIT))
            drain(store)
    stored.rows("DELETE FROM op WHERE txid = ANY (:txids)", txids=[end.txid for end in lost])
    assert [doubt.txid for doubt in swept(store, group)] == [end.txid for end in undecided]


def test_it_is_found_where_the_queue_was_long_before(store: PostgresStore, stored: Stored) -> None:
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


def test_a_sweep_says_how_many_it_listed(store: PostgresStore, stored: Stored) -> None:
    group, (qid,) = new_group(store), new_queues(store)
    half = prepared(store, group, row(qid, "a"))
    decided(store, end_of(half, COMMIT))
    drain(store)
    stored.rows("DELETE FROM op")
    assert store.doubts.sweep(timedelta(0)) == 0
