"""
The plans of the work style: whoever takes or acknowledges looks at little more than what he gets.

Members ask several times a second for what is due, while thousands of messages are in others' hands.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.scene.stored import Stored
from tests.store.plan import Prepared
from txsaga.consume.claims_store import ClaimStatements
from txsaga.store.statement import PreparedStatement
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

HELD, DUE, QUEUES = 10_000, 20, [1, 2, 3, 4]
FEW = 100
FILL = f"""
INSERT INTO claim (grp, qid, base, size, open, attempts, until, receipt)
SELECT 'billing', i % 4 + 1, i, 1, 1, 1, clock_timestamp() + interval '1 hour', i FROM generate_series(1, {HELD}) i;
INSERT INTO claim (grp, qid, base, size, open, attempts, until)
SELECT 'billing', i % 4 + 1, i, 1, 1, 0, clock_timestamp() FROM generate_series({HELD} + 1, {HELD + DUE}) i"""

LINE = """
INSERT INTO claim (grp, qid, base, size, open, attempts, until, key)
SELECT 'billing', q, 20000 + i, 1, 1, 0, clock_timestamp() + CASE WHEN i <= {keys} THEN interval '1 hour' ELSE '0' END,
       i % {keys} FROM generate_series(1, 4) q, generate_series(1, 512) i"""

SOME = range(5_000, 5_020)
ACK: dict[str, object] = {
    "groups": ["billing"] * len(SOME),
    "counts": [i % 4 + 1 for i in SOME],
    "offsets": list(SOME),
    "pgroup": [1] * len(SOME),
    "numbers": list(SOME),
    "masks": [1] * len(SOME),
}
HOLD: dict[str, object] = {"seconds": 30.0, "receipt": 5, "member": "anna"}
TAKE_DUE: dict[str, object] = {"group": "billing", "queues": QUEUES, "count": 32, **HOLD}


@pytest.fixture(params=["young", "analyzed"])
def filled(request: pytest.FixtureRequest, home_url: str, stored: Stored) -> Iterator[dict[str, Prepared]]:
    """Give the statements, prepared on an empty store that was filled afterwards."""
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_store(home_url)))
        sql = ClaimStatements.of(f'"{stored.namespace}"')
        one: dict[str, object] = {name: values[:1] for name, values in ACK.items() if isinstance(values, list)}
        asked: dict[str, tuple[PreparedStatement, dict[str, object]]] = {
            "ack": (sql.ack.many, ACK),
            "ack one": (sql.ack.one, one),
            "take_due": (sql.take_due, TAKE_DUE),
        }
        prepared = {
            name: stack.enter_context(closing(Prepared(store.engine, statement, values)))
            for name, (statement, values) in asked.items()
        }
        stored.stop_autovacuum()
        for statement in FILL.split(";"):
            stored.rows(statement)
        if request.param == "analyzed":
            stored.rows("ANALYZE claim")
        yield prepared


@pytest.mark.parametrize("name", ["ack", "ack one", "take_due"])
def test_claims_are_found_by_index_and_little_is_looked_at(filled: dict[str, Prepared], name: str) -> None:
    scans = filled[name].scans()
    assert {scan.table for scan in scans if scan.loops} == {"claim"}
    assert [scan for scan in scans if scan.loops and (not scan.by_index or scan.rows > FEW)] == []


def test_a_line_behind_keys_that_rest_is_looked_through_once(filled: dict[str, Prepared], stored: Stored) -> None:
    line = LINE.format(keys=5)
    stored.rows(line)
    scans = [scan for scan in filled["take_due"].scans() if scan.loops]
    assert all(scan.by_index for scan in scans)
    assert sum(scan.rows for scan in scans) < 2 * 4 * 512 + FEW  # by time, and by key
    assert max(scan.loops for scan in scans) <= DUE
