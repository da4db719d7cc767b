"""What must hold whoever died: read from the tables, and through the public stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import text

import txsaga
from tests.chaos.world import World, database
from tests.services.databases import fresh_name
from txsaga.store import partitions

# Each of these must find nothing once everything is settled and dispatched.
WRONG = {
    "visible without a commit": """
        SELECT l.* FROM {s}.log l LEFT JOIN {s}.op o USING (txid) WHERE o.decision IS DISTINCT FROM 1""",
    "visible though another attempt won": """
        SELECT l.* FROM {s}.log l JOIN {s}.op o USING (txid)
         WHERE o.keyed AND NOT EXISTS (SELECT FROM {s}.part p
               WHERE (p.txid, p.part, p.attempt) = (l.txid, l.part, l.attempt))""",
    "committed and not visible exactly once": """
        SELECT h.txid, h.qid, h.chunk, count(l.base) FROM {s}.op o JOIN {s}.half h USING (txid)
          LEFT JOIN {s}.log l ON (l.qid, l.txid, l.part, l.attempt, l.chunk)
                               = (h.qid, h.txid, h.part, h.attempt, h.chunk)
         WHERE o.decision = 1 AND (NOT o.keyed OR EXISTS (SELECT FROM {s}.part p
               WHERE (p.txid, p.part, p.attempt) = (h.txid, h.part, h.attempt)))
         GROUP BY 1, 2, 3, h.part, h.attempt HAVING count(l.base) <> 1""",
    "a gap in the offsets": """
        SELECT * FROM (SELECT qid, base, tail + sum(n) OVER (PARTITION BY qid ORDER BY base) - n AS due
                         FROM {s}.log JOIN {s}.queue USING (qid)) l
         WHERE base <> due""",
    "a life that says otherwise than its decision": """
        SELECT t.txid, t.state, o.decision FROM {s}.tx t FULL JOIN (SELECT * FROM {s}.op WHERE keyed) o USING (txid)
         WHERE coalesce(o.decision, 0) <> CASE t.state WHEN 'committed' THEN 1 WHEN 'rolled_back' THEN 2 ELSE 0 END""",
    "offsets bound to a decided transaction": "SELECT i.* FROM {s}.intent i JOIN {s}.op o USING (txid)",
    "closed, undecided and not parked": "SELECT txid, state FROM {s}.tx WHERE state IN ('sealed', 'prepared')",
    "a half nobody settles": """
        SELECT h.txid FROM {s}.half h LEFT JOIN {s}.op o USING (txid) LEFT JOIN {s}.doubt d USING (txid)
         WHERE o.txid IS NULL AND NOT h.keyed AND d.parked IS NULL""",
    "a settled transaction among the doubts": "SELECT d.txid FROM {s}.doubt d JOIN {s}.op o USING (txid)",
}
WRONG["a question that nobody took away"] = "SELECT txid, member FROM {s}.question"
# Each check that counts leaves a remark; a person who resumes starts the count anew.
WRONG["a check that was lost or counted twice"] = """
    SELECT d.txid, d.checks, d.remarks FROM {s}.doubt d
     WHERE d.checks <> (SELECT count(*) FROM jsonb_array_elements(d.remarks) r WHERE r ->> 'answer' = 'UNKNOWN')
       AND NOT EXISTS (SELECT FROM {s}.event e WHERE e.txid = d.txid AND e.what = 'RESUMED')"""
WRONG["more checks than the most"] = "SELECT txid, checks FROM {s}.doubt WHERE checks > 3"
WRONG["parked or decided without a record"] = """
    SELECT d.txid FROM {s}.doubt d WHERE d.parked IS NOT NULL
       AND NOT EXISTS (SELECT FROM {s}.event e WHERE e.txid = d.txid AND e.what = 'PARKED')"""
WRONG["a message bound to a decided transaction"] = "SELECT c.* FROM {s}.claim c JOIN {s}.op o USING (txid)"
DROPPED = """
SELECT x.txid FROM unnest(cast(:txids AS int8[])) x (txid), {s}.tx_seq q
 WHERE x.txid / :span < q.last_value / :span
   AND NOT EXISTS (SELECT FROM {s}.op o WHERE o.txid = x.txid)
   AND NOT EXISTS (SELECT FROM {s}.half h WHERE h.txid = x.txid)
   AND NOT EXISTS (SELECT FROM {s}.log l WHERE l.txid = x.txid)
   AND NOT EXISTS (SELECT FROM {s}.tx t WHERE t.txid = x.txid)"""
EVIDENCE = "SELECT txid, outcome FROM txsaga_evidence WHERE branch = ''"


def decisions(world: World) -> dict[int, int]:
    """Read every decision."""
    with database(world.home_database) as engine, engine.connect() as connection:
        rows = connection.execute(text(f"SELECT txid, decision FROM {world.name}.op"))
        return {txid: decision for txid, decision in rows}


def not_sound(store: str) -> dict[str, Sequence[object]]:
    """Check a store against itself; return what is wrong."""
    url, _, schema = store.partition("?namespace=")
    with database(url) as engine, engine.connect() as connection:
        asked = {what: connection.execute(text(sql.format(s=schema))).all() for what, sql in WRONG.items()}
    return {what: found for what, found in asked.items() if found}


def assert_sound(world: World, before: Mapping[int, int]) -> None:
    """Check the store against itself, against its decisions of before and against the bank's evidence."""
    wrong = not_sound(world.home)
    assert not wrong, wrong
    now = decisions(world)
    assert {txid: now.get(txid) for txid in before} == dict(before) | dict.fromkeys(_dropped(world, before))
    with database(world.bank) as engine, engine.connect() as connection:
        if connection.execute(text("SELECT to_regclass('txsaga_evidence')")).scalar() is not None:
            assert {txid: now.get(txid, outcome) for txid, outcome in connection.execute(text(EVIDENCE))} == {
                txid: outcome for txid, outcome in connection.execute(text(EVIDENCE))
            }


def _dropped(world: World, txids: Iterable[int]) -> set[int]:
    """Return those that went with their partition: nothing is left of them, and none of its numbers is to come."""
    with database(world.home_database) as engine, engine.connect() as connection:
        found = connection.execute(text(DROPPED.format(s=world.name)), {"txids": list(txids), "span": partitions.SPAN})
        return set(found.scalars())


def parked(world: World) -> int:
    """Count the transactions that check-back gave up."""
    with database(world.home_database) as engine, engine.connect() as connection:
        asked = text(f"SELECT count(*) FROM {world.name}.doubt WHERE parked IS NOT NULL")
        return int(connection.execute(asked).scalar_one())


def old_halves(world: World) -> int:
    """Count the halves in the first partition."""
    with database(world.home_database) as engine, engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {world.name}.half_0")).scalar_one())


def delivered(world: World, topic: str) -> list[str]:
    """Read what a consumer group that begins now is given, sorted."""
    return delivered_by(world.home, topic)


def delivered_by(store: str, topic: str) -> list[str]:
    """Read the same of any store."""
    return sorted(body for bodies in _by_queue(store, topic).values() for body in bodies)


def by_queue(world: World, topic: str) -> dict[int, list[str]]:
    """Read a topic, queue by queue in its order."""
    return _by_queue(world.home, topic)


def _by_queue(store: str, topic: str) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    with txsaga.connect(store, roles=False, answering=False, env={}) as broker:
        if topic not in [known.name for known in broker.kernel.store.registry.topics()]:
            return {}
        stream = broker.stream(fresh_name("auditor"), [topic])
        for batch in stream.batches(wait=0):
            found.setdefault(batch.qid, []).extend(body.decode() for body in batch.bodies)
    return found


def positions(world: World, group: str) -> dict[int, int]:
    """Read the cursors of a consumer group."""
    with database(world.home_database) as engine, engine.connect() as connection:
        rows = connection.execute(
            text(f'SELECT qid, "off" FROM {world.name}.cursor WHERE grp = :group'), {"group": group}
        )
        return {qid: offset for qid, offset in rows}


def left_over(world: World) -> dict[str, int]:
    """Count what the workers' group has not done."""
    asked = {
        "claims": "SELECT count(*) FROM {s}.claim",
        "letters": "SELECT count(*) FROM {s}.dead_letter",
        "unread": "SELECT coalesce(sum(q.head - c.off), 0) FROM {s}.cursor c JOIN {s}.queue q USING (qid)"
        " WHERE c.grp = 'workers'",
    }
    with database(world.home_database) as engine, engine.connect() as connection:
        return {
            what: int(connection.execute(text(sql.format(s=world.name))).scalar_one()) for what, sql in asked.items()
        }
