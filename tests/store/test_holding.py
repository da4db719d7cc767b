"""Who works on many transactions holds them one by one: nothing that happens to one keeps the others from it."""

from datetime import datetime

import pytest
from sqlalchemy import text

from tests.contracts.samples import LONG, new_group, opened, swept
from tests.scene.stored import Stored
from txsaga.checkback.heartbeat import Lease
from txsaga.core.lifecycle import TxEvent
from txsaga.store.connection import by_index
from txsaga.store.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.core]


@pytest.mark.rule("R13")
@pytest.mark.timeout(30)
def test_a_doubt_that_somebody_has_locked_keeps_no_other_from_being_held(store: Store, stored: Stored) -> None:
    group = new_group(store)
    txids = [opened(store, group, key=key).txid for key in "abc"]
    with store.ledgers.open() as ledger:
        for txid in txids[:2]:
            ledger.move(txid, TxEvent.SEAL)
    assert [doubt.txid for doubt in swept(store, group)] == txids[:2]
    held = [doubt for txid in txids if (doubt := store.doubts.of(txid)) is not None]
    before = dict(_due(stored))
    with store.engine.connect() as other:
        other.execute(text(f'SELECT FROM "{stored.namespace}".doubt WHERE txid = :t FOR UPDATE'), {"t": txids[0]})
        store.doubts.hold(held, LONG)
        other.rollback()
    after = dict(_due(stored))
    assert after[txids[0]] == before[txids[0]]
    assert after[txids[1]] > before[txids[1]] + LONG / 2
    assert txids[2] in after


def _due(stored: Stored) -> list[tuple[int, datetime]]:
    return [(txid, at) for txid, at in stored.rows("SELECT txid, check_at FROM doubt")]


@pytest.mark.req("RMQ-30")
def test_whoever_is_stopped_in_a_round_loses_its_locks_before_its_lead_is_over(store: Store) -> None:
    with by_index(store.engine) as connection:
        (seconds,) = connection.execute(
            text("SELECT extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)")
        ).one()
    assert 0 < seconds < Lease.TTL.total_seconds()
    with store.engine.connect() as connection:
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "10min"
