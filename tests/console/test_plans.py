"""What the pages ask of a store with a long history is found by an index, and few rows are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event

from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.store.plan import scans_of
from txsaga.console.queries import ConsoleQueries
from txsaga.core.records import TxFilter
from txsaga.inspect.trace import AssignedOffsets, TracePlace
from txsaga.store import partitions
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

COUNT, SPAN = 49_999, 10_000
MOST = 10_100
"""Rows that one scan may look at: a part of what there is."""
FILL = """
INSERT INTO topic (name, type) VALUES ('orders', 'normal');
INSERT INTO queue (qid, topic, idx, head) SELECT i, 1, i, 2500 FROM generate_series(1, 8) i;
INSERT INTO producer_group (name) VALUES ('shop'), ('idle');
INSERT INTO half (txid, pgroup, qid, chunk, n, keyed, body)
SELECT i, 1, i % 8 + 1, 0, 1, true, 'x' FROM generate_series(1, {count}) i;
INSERT INTO part (txid, part, attempt) SELECT i, 0, 0 FROM generate_series(1, {count}) i;
INSERT INTO tx (txid, pgroup, key, epoch, state, run)
SELECT i, 1, 'order-' || i, 1, 'committed', 'airflow:transfer/' || i FROM generate_series(1, {count}) i;
INSERT INTO op (txid, decision, keyed) SELECT i, 1, true FROM generate_series(1, {count}) i;
INSERT INTO log (qid, base, n, txid, part, attempt, chunk)
SELECT i % 8 + 1, i / 8, 1, i, 0, 0, 0 FROM generate_series(1, {count}) i;
INSERT INTO effect (txid, seq, kind, payload)
SELECT i, 1, 'table', jsonb_build_object('part', 0, 'attempt', 0, 'name', jsonb_build_array('sales', 't' || i))
  FROM generate_series(1, {count}) i;
INSERT INTO effect (txid, seq, kind, payload)
SELECT i, 2, 'table', jsonb_build_object('part', 0, 'attempt', 0, 'name', jsonb_build_array('home', 'sales', 'hot'),
       'mode', 'append', 'rows', 1, 'snapshot', i) FROM generate_series(1, {count}) i;
INSERT INTO event (txid, what, who, why) SELECT i, 'COMMIT BY HAND', 'ann', 'why' FROM generate_series(1, {count}) i;
INSERT INTO consumer_group (name, style, first_retry, longest_retry)
SELECT g, 'work', '1s', '1s' FROM unnest(ARRAY['mailer', 'rare', 'quiet']) g;
INSERT INTO dead_letter (grp, topic, qid, off, attempts, cause, history, message, born, body)
SELECT CASE WHEN i % 1000 = 7 THEN 'rare' ELSE 'mailer' END, 'orders', i % 8 + 1, i / 8, 16, 'no', '[]',
       's-' || i, now(), 'x' FROM generate_series(1, {count}) i;
INSERT INTO resource (name, database, enlisted) VALUES ('bank', gen_random_uuid(), true);
INSERT INTO branch (txid, number, attempt, resource, state)
SELECT i, 1, 1, 1, CASE i % 5000 WHEN 7 THEN 'heuristic_mixed' WHEN 8 THEN 'prepared' ELSE 'committed' END
  FROM generate_series(1, {count}) i;
INSERT INTO saga (txid, ticket, until, stalled) SELECT i, 0, now(), i % 2 = 0 FROM generate_series(1, 100) i;
INSERT INTO half (txid, pgroup, qid, chunk, n, keyed, body)
SELECT {count} + 1, 1, 1, i, 100, false, 'x' FROM generate_series(1, 200) i;
INSERT INTO tick (id, snap, last_txid) VALUES (100, pg_current_snapshot(), {count});
INSERT INTO checkpoint VALUES ('sweep', {count}), ('second look', {count});
SELECT setval('tx_seq', {count})"""

GIVEN = [AssignedOffsets(TracePlace("orders", 1), 97, 97, datetime(2026, 1, 1, tzinfo=UTC))]
ASKED: dict[str, Callable[[Store], object]] = {
    "list": lambda store: store.overview.transactions(limit=51),
    "older": lambda store: store.overview.transactions(limit=51, only=TxFilter(before=9_000)),
    "key": lambda store: store.overview.transactions(limit=51, only=TxFilter(key="order-777")),
    "run": lambda store: store.overview.transactions(limit=51, only=TxFilter(run="airflow:transfer/777")),
    "table": lambda store: store.overview.transactions(limit=51, only=TxFilter(table="sales.t777")),
    "group": lambda store: store.overview.transactions(limit=51, only=TxFilter(group="shop")),
    "topic": lambda store: store.overview.transactions(limit=51, only=TxFilter(topic="orders")),
    "committed": lambda store: store.overview.transactions(limit=51, only=TxFilter(frozenset(["committed"]))),
    "rolled back": lambda store: store.overview.transactions(limit=51, only=TxFilter(frozenset(["rolled_back"]))),
    "parked": lambda store: store.overview.transactions(limit=51, only=TxFilter(frozenset(["parked"]))),
    "transaction": lambda store: (
        store.overview.transaction(777),
        store.overview.trace(777),
        store.overview.checks(777),
    ),
    "hot table": lambda store: store.overview.transactions(limit=51, only=TxFilter(table="sales.hot")),
    "tables": lambda store: ConsoleQueries.of(store).tables(limit=51),
    "more tables": lambda store: ConsoleQueries.of(store).tables(limit=51, after="sales.h"),
    "a table": lambda store: ConsoleQueries.of(store).published("sales.hot", limit=51),
    "a table, older": lambda store: ConsoleQueries.of(store).published("sales.hot", limit=51, before=9_000),
    "its rows": lambda store: ConsoleQueries.of(store).written(*range(700, 751)),
    "prepared": lambda store: ConsoleQueries.of(store).prepared(),
    "letters": lambda store: store.dead_letters.list(None, 51),
    "older letters": lambda store: store.dead_letters.list(None, 51, 9_000),
    "letters of a group": lambda store: store.dead_letters.list("mailer", 51, 9_000),
    "few letters of a group": lambda store: store.dead_letters.list("rare", 51, 9_000),
    "no letters of a group": lambda store: store.dead_letters.list("quiet", 51),
    "its letters": lambda store: ConsoleQueries.of(store).letters_of("s", GIVEN),
    "messages": lambda store: ConsoleQueries.of(store).messages(COUNT + 1, limit=101, after=9_000),
    "answerers": lambda store: ConsoleQueries.of(store).answerers("shop"),
    "members": lambda store: ConsoleQueries.of(store).readers("mailer"),
    "heuristic": lambda store: store.overview.transactions(limit=51, only=TxFilter(problem="heuristic")),
    "stalled": lambda store: store.overview.transactions(limit=51, only=TxFilter(problem="stalled")),
    "readers": lambda store: ConsoleQueries.of(store).read_by(["orders"]),
    "audit": lambda store: ConsoleQueries.of(store).audit(limit=51),
    "acts of people": lambda store: ConsoleQueries.of(store).audit(limit=51, people="^REPLAY$"),
    "letters counted": lambda store: ConsoleQueries.of(store).letters(),
    "older audit": lambda store: ConsoleQueries.of(store).audit(limit=51, before=9_000),
    "counts": lambda store: ConsoleQueries.of(store).states(),
    "groups": lambda store: store.overview.readings(),
    "mark": lambda store: ConsoleQueries.of(store).mark(),
}


@pytest.fixture(scope="module")
def history(home_database: str) -> Iterator[Store]:
    """Give what the pages read, of a store with a history."""
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('history')}"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(partitions, "SPAN", SPAN)
        store = stack.enter_context(closing(open_store(url)))
        stored = Stored(url)
        store.log.extend_partitions(COUNT + SPAN)
        stored.stop_autovacuum()
        for statement in FILL.format(count=COUNT).split(";"):
            stored.rows(statement)
        for table in ("half", "op", "tx", "part", "effect", "event", "log", "queue", "topic", "dead_letter", "branch"):
            stored.rows(f"ANALYZE {table}")
        yield store


@pytest.mark.parametrize("name", ASKED)
def test_a_page_looks_at_little(history: Store, name: str) -> None:
    asked = list[tuple[str, Any]]()

    def note(_1: object, _2: object, statement: str, values: Any, *_3: object) -> None:
        asked.append((statement, values))

    event.listen(history.engine, "before_cursor_execute", note)
    try:
        assert ASKED[name](history) is not None
    finally:
        event.remove(history.engine, "before_cursor_execute", note)
    looked = [
        (statement, values) for statement, values in asked if statement.lstrip("-( \n").startswith(("SELECT", "WITH"))
    ]
    assert looked
    with history.engine.connect() as connection:
        for statement, values in looked:
            explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
            plans = connection.exec_driver_sql(explain, values or None).scalar_one()
            wrong = [scan for scan in scans_of(plans) if scan.loops and scan.rows > MOST]
            assert wrong == [], statement
