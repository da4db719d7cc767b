"""
The plans of the hot statements: each finds its rows by an index, and looks at little more than it returns.

A plan is made once per session, on whatever lies there then. So every statement is prepared on an empty store,
then the tables are filled, and the plan must still be right: with the statistics of a young table and with true
ones.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import pytest
from sqlalchemy import Engine, text

from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.store.logins import logins
from tests.store.plan import Prepared, scans_of
from txsaga.consume import log_store
from txsaga.messages import halves_store, registry_store
from txsaga.messages.hot_statements import TOKEN, WRITERS, Hot
from txsaga.store import partitions
from txsaga.store.right import Right
from txsaga.store.statement import BatchStatement, PreparedStatement
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

SPAN, COUNT, QUEUES = 5_000, 14_999, 8
NEW, MISSED = 14_900, 7_000  # decided since the last tick: from there on, and one that was running then
FEW = 700
"""Rows that one scan may look at: far less than a partition, a little more than the biggest answer."""

FILL = """
SELECT setval('tx_seq', {count});
INSERT INTO half (txid, pgroup, qid, chunk, n, batch, keyed, body)
SELECT i, 1, i % {queues} + 1, 0, 1, i / 20, i % 3 = 0, convert_to(repeat('x', 100), 'UTF8')
  FROM generate_series(1, {count}) i;
INSERT INTO part (txid, part, attempt) SELECT i, 0, 0 FROM generate_series(3, {count}, 3) i;
INSERT INTO tx (txid, pgroup, key, epoch, state)
SELECT i, 1, i, 1, CASE WHEN i % 1000 = 500 THEN 'sealed' ELSE 'committed' END FROM generate_series(3, {count}, 3) i;
INSERT INTO op (txid, xid, decision, keyed)
SELECT i, (1000000 + i)::text::xid8, 1, i % 3 = 0 FROM generate_series(1, {count}) i WHERE i % 1000 <> 500;
INSERT INTO log (qid, base, n, txid, part, attempt, chunk)
SELECT i % {queues} + 1, i / {queues}, 1, i, 0, 0, 0 FROM generate_series(1, {new} - 1) i
 WHERE i % 1000 <> 500 AND i <> {missed};
INSERT INTO topic (name, type) VALUES ('filled', 'normal');
INSERT INTO queue (qid, topic, idx, head) SELECT i, 1, i, {count} FROM generate_series(1, {queues}) i;
INSERT INTO tick (id, snap, last_txid) VALUES (100, '{snap}', {new});
INSERT INTO doubt (txid, pgroup, keyed, check_at)
SELECT i, 1, i % 3 = 0, now() + CASE WHEN i % 1000 = 500 THEN interval '-1 hour' ELSE interval '1 hour' END
  FROM generate_series(10, {count}, 10) i;
INSERT INTO scheduled (txid, at, pgroup)
SELECT i, now() + CASE WHEN i % 100 = 0 THEN interval '-1 hour' ELSE interval '1 hour' END, 1
  FROM generate_series(5001, 9999) i WHERE i % 3 <> 0"""
BEFORE = f"{1_000_000 + MISSED}:{1_000_000 + NEW}:{1_000_000 + MISSED}"

SOME = list(range(4_990, 5_010))
ENDS: dict[str, object] = {"txid": SOME, "pgroup": [1] * len(SOME), "token": []}  # filled in when the store is there
VALUES: dict[str, dict[str, object]] = {
    "fetch": {"queue": 3, "offset": 1_200, "count": 100, "end": 2**62},
    "news": {"limit": 10},
    "give": {
        "lo": str(1_000_000 + NEW),
        "hi": str(1_000_000 + COUNT + 1),
        "xip": [str(1_000_000 + MISSED)],
        "snap": BEFORE,
        "qids": None,
        "blocked": [QUEUES],
    },
    "decide": {**ENDS, "decision": [1] * len(SOME), "check": [False] * len(SOME), "min_age": 6},
    "standing": ENDS,
    "decide one": {**ENDS, "decision": [1] * len(SOME), "check": [False] * len(SOME), "min_age": 6},
    "standing one": ENDS,
    "recall": {**ENDS, "decision": [2] * len(SOME), "check": [False] * len(SOME), "min_age": 6},
    "recall one": {**ENDS, "decision": [2] * len(SOME), "check": [False] * len(SOME), "min_age": 6},
    "due": {"limit": 1_000},
    "doubts": {"limit": 50},
    "doubt": {"txid": 12_345},
    "batch": {"low": 14_800, "batch": 745},
}
READS = {
    "fetch": {"half_1", "half_2", "log"},
    "news": {"op_0", "op_1", "op_2"},
    "give": {"op_0", "op_1", "op_2", "half_1", "half_2", "part", "log"},
    "decide": {"half_0", "half_1"},
    "standing": {"half_0", "half_1", "op_0", "op_1"},
    "decide one": {"half_0"},
    "standing one": {"half_0", "op_0"},
    "recall": {"half_0", "half_1", "scheduled"},
    "recall one": {"half_0", "scheduled"},
    "due": {"half_1", "scheduled"},
    "doubts": {"half_0", "half_1", "half_2", "op_0", "op_1", "op_2", "tx", "doubt", "question"},
    "doubt": {"half_2", "tx", "doubt"},
    "batch": {"half_2"},
}


TYPES = {"lo": "xid8", "hi": "xid8", "xip": "xid8[]", "snap": "pg_snapshot", "qids": "int4[]", "blocked": "int4[]"}
TICKING = {
    "news": log_store.SQL["news"],
    "give": log_store.SQL["give"]
    % {name: f"%({name})s::text{'[]' if '[' in type else ''}::{type}" for name, type in TYPES.items()},
}
ALONE = {"decide one", "standing one", "recall one"}


class Filled(NamedTuple):
    """A store with a past, and hot sessions that know it from its youth."""

    engine: Engine
    schema: str
    hot: Hot
    statements: dict[str, Prepared]


def written(hot: Hot, namespace: str, name: str) -> PreparedStatement | str:
    """Return a statement, in its form for one row where the name says so."""
    if name in TICKING:
        return TICKING[name].format(s=f'"{namespace}"').strip()
    if name == "due":
        return PreparedStatement.of(halves_store.SCHEDULE["commit_due"].format(s=f'"{namespace}"'), ("int4",))
    of_both = name.removesuffix(" one")
    found: BatchStatement | PreparedStatement | str = (
        hot.writers[of_both] if of_both in WRITERS else getattr(hot, of_both)
    )
    if isinstance(found, BatchStatement):
        return found.one if name in ALONE else found.many
    return found


RAW = ("standing", "standing one", "due", "doubts", "doubt", "batch")
"""What whoever was granted a right runs himself: the rest is run by functions, in the same words."""


@pytest.fixture(scope="module", params=["young", "analyzed"])
def filled(request: pytest.FixtureRequest, home_database: str) -> Iterator[Filled]:
    """Give the hot statements, prepared on an empty store that was filled afterwards."""
    with filled_store(home_database, list(VALUES), analyzed=request.param == "analyzed") as filled:
        yield filled


@pytest.fixture(scope="module")
def granted(home_database: str) -> Iterator[Filled]:
    """Give those of a login that has every right, but does not own the namespace."""
    with filled_store(home_database, list(RAW), analyzed=True, owner=False) as filled:
        yield filled


@contextmanager
def filled_store(database: str, names: list[str], *, analyzed: bool, owner: bool = True) -> Iterator[Filled]:
    """Prepare statements on an empty store, and fill it."""
    url = f"{database}{'&' if '?' in database else '?'}namespace={fresh_name('plans')}"
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(partitions, "SPAN", SPAN)
        store, stored = stack.enter_context(closing(open_store(url))), Stored(url)
        store.log.extend_partitions(2 * SPAN)
        engine = store.engine
        if not owner:
            login = stack.enter_context(logins(url)).url_with(*Right)
            engine = stack.enter_context(closing(Store.open(login))).engine
        hot, statements = Hot(f'"{stored.namespace}"', owner=owner), dict[str, Prepared]()
        token = TOKEN.format(s=stored.namespace, group="1", txid=":t")
        known = {"token": [stored.value(f"SELECT {token}", t=txid) for txid in SOME]}
        for name in names:
            values = {column: known.get(column, value) for column, value in VALUES[name].items()}
            if name in ALONE:
                values = {column: value[:1] if isinstance(value, list) else value for column, value in values.items()}
            statements[name] = stack.enter_context(
                closing(Prepared(engine, written(hot, stored.namespace, name), values))
            )
        stored.rows("DELETE FROM tick")  # those above
        stored.stop_autovacuum()
        for statement in FILL.format(count=COUNT, queues=QUEUES, new=NEW, missed=MISSED, snap=BEFORE).split(";"):
            stored.rows(statement)
        if analyzed:
            for table in ("half", "op", "log", "tick", "queue", "doubt", "part", "tx", "scheduled"):
                stored.rows(f"ANALYZE {table}")
        yield Filled(engine, stored.namespace, hot, statements)


@pytest.mark.req("RMQ-18")
@pytest.mark.parametrize("name", VALUES)
def test_a_hot_statement_goes_by_index_and_looks_at_little(filled: Filled, name: str) -> None:
    scans = filled.statements[name].scans()
    assert {scan.table for scan in scans if scan.loops} == READS[name], "\n".join(map(repr, scans))
    assert [scan for scan in scans if not scan.by_index or scan.rows > FEW] == []


@pytest.mark.parametrize("name", RAW)
def test_policies_make_nobody_look_at_more(granted: Filled, name: str) -> None:
    scans = granted.statements[name].scans()
    assert {scan.table for scan in scans if scan.loops} == READS[name], "\n".join(map(repr, scans))
    assert [scan for scan in scans if not scan.by_index or scan.rows > FEW] == []


def test_a_sweep_under_policies_looks_at_its_range_only(granted: Filled) -> None:
    test_a_sweep_looks_at_its_range_only(granted)


def test_a_sweep_looks_at_its_range_only(filled: Filled) -> None:
    values = {"lo": 9_700, "hi": 10_200, "age": 6.0, "least": 6}
    with filled.engine.connect() as connection:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {filled.hot.sweep}"
        plans = connection.exec_driver_sql(explain, values).scalar_one()
    scans = list(scans_of(plans))
    assert {scan.table for scan in scans} == {"half_1", "half_2", "op_1", "op_2", "scheduled"}
    assert [scan for scan in scans if not scan.by_index or scan.rows > FEW] == []


def test_what_a_topic_is_needed_for_is_found_by_index(filled: Filled) -> None:
    with filled.engine.connect() as connection:
        schema = f'"{filled.schema}"'
        connection.execute(text(f"INSERT INTO {schema}.checkpoint VALUES ('sweep', {NEW}), ('second look', {NEW})"))
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {registry_store.SQL['needed'].format(s=schema)}"
        plans = connection.execute(text(explain), {"id": 1, "name": "filled"}).scalar_one()
    scans = [scan for scan in scans_of(plans) if scan.table.startswith(("half", "op", "tx"))]
    assert len(scans) > 5
    assert [scan for scan in scans if scan.loops and "Seq Scan" in scan.kind] == []


def test_the_measure_tells_a_bad_plan(filled: Filled) -> None:
    with filled.engine.connect() as connection:
        bad = "SELECT count(batch) FROM {s}.half WHERE n = 2"
        explain = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {bad.format(s=filled.schema)}")
        scans = list(scans_of(connection.execute(explain).scalar_one()))
    assert scans and not any(scan.by_index for scan in scans)
    assert max(scan.rows for scan in scans) > FEW
