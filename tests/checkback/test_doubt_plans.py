"""
The plans of check-back: each statement finds its rows by index, however many doubts and decisions there are.

The text is what the store really sends. It is prepared while everything is empty, as a session of a young engine would
have it, then the tables are filled; and it is planned anew on the full tables, as a fresh session would.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, event

from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.store.plan import Prepared, Scan, scans_of
from txsaga.checkback.doubts_store import forget
from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import Ask, Lead, PutOff, QuestionAnswer, VerdictRecord
from txsaga.core.decision import Decision, LocalState
from txsaga.core.records import Doubt
from txsaga.store import partitions
from txsaga.store.connection import by_index
from txsaga.store.pipeline import PipelineConnection, Rows
from txsaga.store.statement import StatementCall
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

SPAN, COUNT = 50_000, 120_000
FEW = 200
"""Rows that one scan may look at: a little more than the biggest answer."""
SOME = list(range(60_010, 60_210, 10))  # undecided, and with no question
MINE = list(range(70_010, 70_210, 10))  # undecided, and asked about at me
FILL = f"""
SELECT setval('tx_seq', {COUNT});
INSERT INTO producer_group (id, name, transactional) VALUES (1, 'shop', true) ON CONFLICT DO NOTHING;
INSERT INTO topic (id, name, type) VALUES (1, 'orders', 'transaction') ON CONFLICT DO NOTHING;
INSERT INTO queue (qid, topic, idx) VALUES (1, 1, 0) ON CONFLICT DO NOTHING;
INSERT INTO half (txid, pgroup, qid, chunk, n, body)
SELECT i, 1, 1, 0, 1, convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, {COUNT}) i;
INSERT INTO op (txid, decision) SELECT i, 1 FROM generate_series(1, {COUNT}) i WHERE i % 10 <> 0;
INSERT INTO tx (txid, pgroup, key, epoch, state) SELECT i, 1, i, 1, 'committed' FROM generate_series(1, {COUNT}) i;
INSERT INTO doubt (txid, pgroup, keyed, check_at)
SELECT i, 1, i % 20 = 0, now() + CASE WHEN i BETWEEN {SOME[0]} AND {SOME[-1]} AND i % 10 = 0
                          THEN interval '-1 hour' ELSE interval '1 hour' END FROM generate_series(1, {COUNT}) i;
INSERT INTO question (txid, pgroup, member, patience, asked, until)
SELECT i, 1, 'other', interval '3 seconds', now(),
       now() + CASE WHEN i % 10000 = 0 THEN interval '-1 hour' ELSE interval '1 hour' END
  FROM generate_series(10, {COUNT}, 10) i WHERE i NOT BETWEEN {SOME[0]} AND {MINE[-1]};
INSERT INTO question (txid, pgroup, member, patience)
SELECT i, 1, 'me', interval '3 seconds' FROM generate_series({MINE[0]}, {MINE[-1]}, 10) i;
INSERT INTO lease (kind, name, holder, until)
VALUES ('round', 'check-back', 'me', now() + interval '1 hour'),
       ('checker:1', 'me', 'me', now() + interval '1 hour'), ('checker:1', 'other', 'other', now() + interval '1 hour')
"""
SECOND = timedelta(seconds=1)
CALLS: dict[str, Callable[[Store], object]] = {
    "waiting": lambda store: store.doubts.waiting(SECOND),
    "due": lambda store: store.doubts.due(50),
    "hold": lambda store: store.doubts.hold(
        [Doubt(txid=txid, group=1, token=b"", keyed=False, evidence=None) for txid in SOME], LEASE
    ),
    "settle": lambda store: store.doubts.settle(
        [VerdictRecord(txid, Decision.COMMIT, "x") for txid in SOME], "check-back"
    ),
    "put off": lambda store: store.doubts.put_off([PutOff(txid, SECOND, "x", True) for txid in SOME]),
    "ask": lambda store: store.questions.ask(
        [Ask(txid, 1, "me", SECOND, SECOND) for txid in SOME], Lead("round", "check-back", "me", 1)
    ),
    "take": lambda store: store.questions.take("me", 50),
    "views": lambda store: store.halves.views_of(SOME),
    "answered": lambda store: store.questions.answered(
        "me", [QuestionAnswer(txid, LocalState.COMMIT, "x") for txid in MINE]
    ),
    "collect": lambda store: store.questions.collect(),
    "forget": lambda store: forgotten(store),
}
TOUCHED = {
    "waiting": {"doubt"},
    "due": {"doubt", "question", "half_1", "op_1", "tx"},
    "hold": {"doubt", "op_1"},
    "settle": {"doubt", "half_1"},
    "put off": {"doubt"},
    "ask": {"doubt", "question", "op_1"},
    "take": {"question"},
    "views": {"half_1", "op_1"},
    "answered": {"doubt", "question"},
    "collect": {"question", "op_0", "op_2"},
    "forget": {"doubt", "op_0", "op_1", "op_2"},
}
READ_WHOLE = {"collect": {"question"}, "waiting": {"question"}, "forget": {"doubt"}}
"""Of each doubt its decision and its question are looked up. Each question is seen: a member has so many at a time."""


def forgotten(store: Store) -> None:
    """Take off the list what was decided."""
    with by_index(store.engine) as connection:
        forget(connection, f'"{store.namespace}"')


class Sent(NamedTuple):
    """A statement as the store sends it."""

    text: str
    values: dict[str, Any]


class Filled(NamedTuple):
    """A store with a past, what it sends, and sessions that know it from its youth."""

    engine: Engine
    sent: dict[str, Sent]
    prepared: dict[str, Prepared]


def sent_by(store: Store, call: Callable[[Store], object]) -> Sent:
    """Return the longest statement of a call: the others are settings and the lead."""
    seen: list[Sent] = []
    exchange = PipelineConnection.exchange

    def note_exchange(line: PipelineConnection, calls: Sequence[StatementCall]) -> list[Rows]:
        for each in calls:
            numbers = {f"p{at}": int.from_bytes(value or b"") for at, value in enumerate(each.values, 1)}
            seen.append(Sent(re.sub(r"\$(\d+)", r"%(p\1)s", each.sql.strip()), numbers))
        return exchange(line, calls)

    def note(connection: object, cursor: object, text: str, values: dict[str, Any] | None, *rest: object) -> None:
        seen.append(Sent(text.strip(), dict(values or {})))

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PipelineConnection, "exchange", note_exchange)
            call(store)
    finally:
        event.remove(store.engine, "before_cursor_execute", note)
    return max(seen, key=lambda each: len(each.text))


@pytest.fixture(scope="module", params=["young", "analyzed"])
def filled(request: pytest.FixtureRequest, home_database: str) -> Iterator[Filled]:
    """Give the statements, prepared on an empty store that was filled afterwards."""
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('doubts')}"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(partitions, "SPAN", SPAN)
        store, stored = stack.enter_context(closing(open_store(url))), Stored(url)
        store.log.extend_partitions(2 * SPAN)
        sent = {name: sent_by(store, call) for name, call in CALLS.items()}
        prepared = {
            name: stack.enter_context(closing(Prepared(store.engine, each.text, each.values)))
            for name, each in sent.items()
        }
        stored.rows("DELETE FROM doubt")  # what was held above
        stored.stop_autovacuum()
        for statement in FILL.split(";"):
            stored.rows(statement)
        if request.param == "analyzed":
            for table in ("half", "op", "tx", "doubt", "question"):
                stored.rows(f"ANALYZE {table}")
        yield Filled(store.engine, sent, prepared)


@pytest.mark.req("RMQ-18")
@pytest.mark.parametrize("name", CALLS)
def test_a_plan_from_the_youth_of_a_store_goes_by_index(filled: Filled, name: str) -> None:
    check(name, filled.prepared[name].scans())


@pytest.mark.req("RMQ-18")
@pytest.mark.parametrize("name", CALLS)
def test_a_plan_made_on_full_tables_goes_by_index(filled: Filled, name: str) -> None:
    each = filled.sent[name]
    with by_index(filled.engine) as connection:
        plans = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {each.text}", each.values).scalar_one()
        connection.rollback()
    check(name, list(scans_of(plans)))


def check(name: str, scans: list[Scan]) -> None:
    """Hold that the statement came to its rows, by index, and looked at little more."""
    looked = [scan for scan in scans if scan.loops]
    told = "\n".join(map(repr, looked))
    assert TOUCHED[name] <= {scan.table for scan in looked}, told
    wide = [scan for scan in looked if scan.table not in READ_WHOLE.get(name, ())]
    assert [scan for scan in wide if not scan.by_index] == [], told
    for_each = {"op_0", "op_1", "op_2", "question"} if name in READ_WHOLE else set()
    assert [scan for scan in wide if scan.rows > FEW and scan.table not in for_each] == [], told
