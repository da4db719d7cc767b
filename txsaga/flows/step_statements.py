"""
The statements about steps and sagas, each for any number of them.

Only the owner of a transaction can write: a superseded one matches no row. A step is written only while its transaction
is open, under its lock (R3): ROLLBACK waits for the write, or the write sees it.
"""

from __future__ import annotations

from collections.abc import Sequence

from txsaga.checkback.profile import LEASE
from txsaga.checkback.questions import kept
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.flows.branch_statements import HAS_PLACE
from txsaga.flows.ports import Close, Mark, OpenSaga, RecordStep, ReleaseSaga, Settle, Start
from txsaga.flows.step import STEP, TARGETS, UNDONE, StepEvent, StepState
from txsaga.store.values import (
    Value,
    bool_array,
    bytea_array,
    float8_array,
    int4_array,
    int8_array,
    text_array,
)

NOW = "clock_timestamp()"
# Between two thirds of it and all of it: the sagas of one process must not all expire at once.
SPREAD = f"{NOW} + {{}} * (2 + random()) / 3 * interval '1 second'"
LEASED = SPREAD.format(LEASE.total_seconds())


def _listed(states: tuple[str, ...] | frozenset[StepState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


TO_UNDO = _listed(STEP.sources(StepEvent.COMPENSATE))
OVER = _listed(UNDONE)

STEP_TYPES = ("int4[]", "text[]", "text[]", "text[]", "text[]", "text[]", "text[]", "float8[]")
NEW = 'number, name, attempt, state, kind, resource, input, compensation, action, due, "left"'
GIVEN = "number, name, kind, resource, input, compensation, action, expires"


def _row(of: str, owner: str) -> str:
    due = f"CASE WHEN {of}.expires >= 0 THEN {NOW} + {of}.expires * interval '1 second' END"
    nullable = (f"nullif({of}.{name}, '')::jsonb" for name in ("compensation", "action"))
    return (
        f"{of}.number, {of}.name, {owner}, '{StepState.STARTED}', {of}.kind, nullif({of}.resource, ''), "
        f"{of}.input::jsonb, {', '.join(nullable)}, {due}, 'unknown'"
    )


OPEN_TYPES = ("int4[]", "text[]", "int8[]", "int4[]", *STEP_TYPES, "int8[]", "bytea[]", "bool[]")
OPEN_ANSWERS = "ord int8, txid int8, token bytea, first bool"
# One that has its number shows that it was assigned, as `conclude` asks; it may be repeated: existing rows stay.
# It gets a saga row unless its decision is in this commit.
OPEN = f"""
WITH x AS MATERIALIZED (
    SELECT x.* FROM (
        SELECT CASE WHEN r.given > 0 THEN r.given ELSE nextval('{{s}}.tx_seq') END AS txid, r.*
          FROM unnest($1, $2, $3, $13, $14, $15) WITH ORDINALITY AS r(pgroup, run, ticket, given, mine, kept, ord)
         CROSS JOIN {{s}}.store WHERE r.given > 0 OR NOT store.rejecting OFFSET 0) x
     WHERE x.given = 0 OR (x.mine = {{given}} AND {HAS_PLACE.format("x.given")})),
 t AS (INSERT INTO {{s}}.tx (txid, pgroup, epoch, state, run)
    SELECT txid, pgroup, 1, '{TxState.ACTIVE}', nullif(run, '') FROM x ORDER BY txid
        ON CONFLICT (txid) DO NOTHING RETURNING tx.txid),
 g AS (INSERT INTO {{s}}.saga (txid, ticket, until)
    SELECT x.txid, ticket, {LEASED} FROM x JOIN t ON t.txid = x.txid WHERE x.kept),
 n AS (INSERT INTO {{s}}.step (txid, {NEW})
    SELECT x.txid, {_row("r", "1")} FROM x JOIN t ON t.txid = x.txid
      JOIN unnest($4, $5, $6, $7, $8, $9, $10, $11, $12) AS r(ord, {GIVEN}) ON r.ord = x.ord)
SELECT x.ord, x.txid, {{token}}, t.txid IS NOT NULL FROM x LEFT JOIN t ON t.txid = x.txid"""

# Finds a begin whose answer was lost, so that it is never done twice.
OPENED = """
SELECT r.ord, g.txid, {token}, true FROM unnest($1, $2) WITH ORDINALITY AS r(pgroup, ticket, ord)
  JOIN {s}.saga g ON g.ticket = r.ticket JOIN {s}.tx ON tx.txid = g.txid AND tx.pgroup = r.pgroup"""

RECORD = f"""
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS r(txid, owner, {GIVEN})),
 t AS MATERIALIZED (
    SELECT k.txid, k.owner FROM (SELECT DISTINCT txid, owner FROM r ORDER BY txid) o
     CROSS JOIN LATERAL (SELECT txid, owner FROM {{s}}.tx WHERE tx.txid = o.txid AND tx.owner = o.owner
                            AND tx.state = '{TxState.ACTIVE}' OFFSET 0 FOR SHARE) k),
 g AS (INSERT INTO {{s}}.saga (txid, ticket, until) SELECT txid, 0, {LEASED} FROM t ON CONFLICT DO NOTHING),
 n AS (INSERT INTO {{s}}.step (txid, {NEW})
    SELECT r.txid, {_row("r", "t.owner")} FROM r JOIN t USING (txid, owner) ON CONFLICT DO NOTHING)
SELECT txid FROM t"""

# The states that an event leaves are passed in, from the one table of the lifecycle.
MARK = """
UPDATE {s}.step SET state = coalesce(nullif(m.target, ''), step.state),
       "left" = coalesce(nullif(m.remains, ''), step."left"),
       output = coalesce(nullif(m.output, '')::jsonb, step.output),
       error = coalesce(nullif(m.error, ''), step.error),
       attempts = CASE WHEN m.tries < 0 THEN 0 ELSE step.attempts + m.tries END, at = clock_timestamp()
  FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    AS m(txid, owner, number, target, sources, remains, output, error, tries)
  JOIN {s}.tx t ON t.txid = m.txid AND t.owner = m.owner
 WHERE step.txid = m.txid AND step.number = m.number AND step.state = ANY (string_to_array(m.sources, ','))
RETURNING step.txid, step.number, m.owner"""

# Runs after the owner's decision, in its commit; the current owner sees to the steps, no matter who decided.
SETTLE = f"""
WITH d AS MATERIALIZED (
    SELECT w.txid, w.driver, tx.state, tx.owner FROM unnest($1, $2, $3) AS w(txid, owner, driver)
      JOIN {{s}}.tx ON tx.txid = w.txid AND tx.owner = w.owner
     WHERE tx.state IN ('{TxState.COMMITTED}', '{TxState.ROLLED_BACK}')),
 f AS (INSERT INTO {{s}}.step (txid, {NEW})
    SELECT r.txid, {_row("r", "d.owner")}
      FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12) AS r(txid, {GIVEN}) JOIN d USING (txid)
     WHERE d.state = '{TxState.COMMITTED}' ON CONFLICT (txid, number) DO UPDATE SET at = {NOW} RETURNING txid),
 c AS (UPDATE {{s}}.step SET state = '{StepState.COMPENSATING}', at = {NOW} FROM d
        WHERE step.txid = d.txid AND d.state = '{TxState.ROLLED_BACK}' AND step.state IN ({TO_UNDO})
          AND step.action IS NULL
    RETURNING step.txid),
 l AS MATERIALIZED (SELECT txid FROM f UNION SELECT txid FROM c),
 g AS (DELETE FROM {{s}}.saga USING d WHERE saga.txid = d.txid AND d.state = '{TxState.COMMITTED}'
          AND NOT EXISTS (SELECT FROM l WHERE l.txid = d.txid)),
 u AS (INSERT INTO {{s}}.saga (txid, ticket, until, driver)
    SELECT d.txid, 0, {LEASED}, d.driver FROM d JOIN l USING (txid)
        ON CONFLICT (txid) DO UPDATE SET until = excluded.until, driver = excluded.driver)
SELECT txid FROM d"""

# The owner is read under its lock: a driver that was superseded meanwhile releases nothing.
REST = f"""
WITH r AS MATERIALIZED (
    SELECT r.* FROM (SELECT * FROM unnest($1, $2, $3, $4, $5) AS r(txid, owner, by, why, stalled) ORDER BY txid) r
     CROSS JOIN LATERAL (SELECT FROM {{s}}.tx WHERE tx.txid = r.txid AND tx.owner = r.owner OFFSET 0 FOR SHARE) t)
UPDATE {{s}}.saga SET until = {NOW} + r.by * interval '1 second', driver = NULL, why = nullif(r.why, ''),
       stalled = r.stalled
  FROM r WHERE saga.txid = r.txid RETURNING saga.txid, r.owner"""

LEFT = f"""SELECT FROM {{s}}.step n WHERE n.txid = t.txid AND CASE t.state
             WHEN '{TxState.ROLLED_BACK}' THEN n.action IS NULL AND n.state NOT IN ({OVER})
             WHEN '{TxState.COMMITTED}' THEN n.action IS NOT NULL AND n.state = '{StepState.STARTED}' ELSE true END"""
CLOSE = f"""
DELETE FROM {{s}}.saga USING unnest($1, $2) AS c(txid, owner) JOIN {{s}}.tx t ON t.txid = c.txid AND t.owner = c.owner
 WHERE saga.txid = c.txid AND NOT EXISTS ({LEFT}) RETURNING saga.txid, c.owner"""

COLUMNS = (
    "number, name, attempt, state, kind, resource, input::text, compensation::text, action::text, output::text, "
    "\"left\", coalesce(error, ''), attempts, due, at"
)
OF = f"SELECT txid, {COLUMNS} FROM {{s}}.step WHERE txid = :txid ORDER BY number"
OF_ALL = f"SELECT txid, {COLUMNS} FROM {{s}}.step WHERE txid = ANY (:txids) ORDER BY txid, number"

# The clock is read once; locked rows are in work right now. Of a committed flow nothing is left to do: its owner may
# still be finishing its branches, and must not find itself superseded.
CLAIM = f"""
WITH lost AS MATERIALIZED (
    SELECT g.txid FROM {{s}}.saga g JOIN {{s}}.tx ON tx.txid = g.txid
     WHERE NOT g.stalled AND (CAST(:txid AS int8) IS NULL OR g.txid = :txid)
       AND CASE WHEN tx.state = '{TxState.ACTIVE}' THEN
               (tx.run IS NULL AND tx.lease IS NULL AND g.until <= (SELECT {NOW}))
               OR EXISTS (SELECT FROM {{s}}.step n WHERE n.txid = tx.txid AND n.due <= (SELECT {NOW}))
           ELSE tx.state IN ('{TxState.COMMITTED}', '{TxState.ROLLED_BACK}') AND g.until <= (SELECT {NOW}) END
     ORDER BY g.txid LIMIT :limit FOR UPDATE OF g, tx SKIP LOCKED),
 m AS (UPDATE {{s}}.tx SET touched = {NOW}, owner = owner + (tx.lease IS NULL OR tx.state <> '{TxState.COMMITTED}')::int
         FROM lost WHERE tx.txid = lost.txid
    RETURNING tx.txid, tx.pgroup, tx.owner, tx.state, tx.key),
 g AS (UPDATE {{s}}.saga SET until = {SPREAD.format(":lease")}, driver = :driver
         FROM lost WHERE saga.txid = lost.txid),
 c AS (UPDATE {{s}}.step SET state = '{StepState.COMPENSATING}', at = {NOW} FROM m
        WHERE step.txid = m.txid AND m.state = '{TxState.ROLLED_BACK}' AND step.state IN ({TO_UNDO})
          AND step.action IS NULL)
SELECT txid, pgroup, owner, CASE state WHEN '{TxState.COMMITTED}' THEN {int(Decision.COMMIT)}
       WHEN '{TxState.ROLLED_BACK}' THEN {int(Decision.ROLLBACK)} END, key FROM m ORDER BY txid"""

HOLD = f"""
UPDATE {{s}}.saga SET until = {SPREAD.format(":lease")}
  FROM unnest(CAST(:txids AS int8[]), CAST(:owners AS int4[])) AS h(txid, owner)
  JOIN {{s}}.tx t ON t.txid = h.txid AND t.owner = h.owner
 WHERE saga.txid = h.txid AND (saga.driver IS NOT NULL OR t.state = '{TxState.ACTIVE}')"""

LISTED = f"""
SELECT g.txid, p.name, t.key, CASE t.state WHEN '{TxState.COMMITTED}' THEN 1 WHEN '{TxState.ROLLED_BACK}' THEN 2 END,
       (SELECT count(*) FROM {{s}}.step n WHERE n.txid = t.txid),
       (SELECT count(*) FROM ({LEFT}) x), g.driver, g.until, g.stalled, coalesce(g.why, '')
  FROM {{s}}.saga g JOIN {{s}}.tx t ON t.txid = g.txid JOIN {{s}}.producer_group p ON p.id = t.pgroup
 WHERE CAST(:txid AS int8) IS NULL OR g.txid = :txid ORDER BY g.txid LIMIT :limit"""

COUNTED = f"""
SELECT count(*) FILTER (WHERE t.state NOT IN ('{TxState.COMMITTED}', '{TxState.ROLLED_BACK}')),
       count(*) FILTER (WHERE t.state IN ('{TxState.COMMITTED}', '{TxState.ROLLED_BACK}') AND NOT g.stalled
                          AND g.why IS NULL),
       count(*) FILTER (WHERE NOT g.stalled AND g.why IS NOT NULL), count(*) FILTER (WHERE g.stalled)
  FROM {{s}}.saga g JOIN {{s}}.tx t ON t.txid = g.txid"""

# By hand, in the transaction that records who did it and why.
UNCOMPENSATED = "SELECT EXISTS (SELECT FROM {s}.saga WHERE txid = :txid)"
MOVE = """
UPDATE {s}.step SET state = :target, attempts = 0, error = coalesce(nullif(:why, ''), error), at = clock_timestamp()
 WHERE txid = :txid AND number = :number AND state = ANY (:sources)"""
WAKE = "UPDATE {s}.saga SET until = clock_timestamp(), stalled = false, why = NULL WHERE txid = :txid"


Values = list[Value | None]
SOURCES = {event: ",".join(STEP.sources(event)) for event in TARGETS}
ANY = ",".join(dict.fromkeys(state for state, _ in STEP.moves))
"""A try without an event is recorded for a step in any unfinished state."""


def steps(starts: Sequence[Start]) -> Values:
    """Encode steps that are about to run, as parameters."""
    return [
        int4_array([each.number for each in starts]),
        text_array([each.name for each in starts]),
        text_array([each.kind.value for each in starts]),
        text_array([each.resource or "" for each in starts]),
        text_array([each.input for each in starts]),
        text_array([each.compensation or "" for each in starts]),
        text_array([each.action or "" for each in starts]),
        float8_array([-1.0 if each.expires is None else each.expires.total_seconds() for each in starts]),
    ]


def opens(begins: Sequence[OpenSaga], tickets: Sequence[int], *, kept: Sequence[bool] = ()) -> Values:
    """Encode begins with their first steps; a ticket, or its number, finds each of them again."""
    named = [(at, step) for at, begin in enumerate(begins, 1) for step in begin.steps]
    return [
        int4_array([begin.group for begin in begins]),
        text_array([begin.run or "" for begin in begins]),
        int8_array(tickets),
        int4_array([at for at, _ in named]),
        *steps([step for _, step in named]),
        int8_array([0 if begin.life is None else begin.life.txid for begin in begins]),
        bytea_array([b"" if begin.life is None else begin.life.given for begin in begins]),
        bool_array(list(kept) or [True] * len(begins)),
    ]


def lost(begins: Sequence[OpenSaga], tickets: Sequence[int]) -> Values:
    """Encode what finds begins again."""
    return [int4_array([begin.group for begin in begins]), int8_array(tickets)]


def records(given: Sequence[RecordStep]) -> Values:
    """Encode further steps."""
    named = [(each.life, step) for each in given for step in each.steps]
    owners = [int8_array([life.txid for life, _ in named]), int4_array([life.owner for life, _ in named])]
    return [*owners, *steps([step for _, step in named])]


def marks(given: Sequence[Mark]) -> Values:
    """Encode marks, with the states that each event may leave."""
    return [
        int8_array([mark.txid for mark in given]),
        int4_array([mark.owner for mark in given]),
        int4_array([mark.number for mark in given]),
        text_array([TARGETS[mark.event].value if mark.event else "" for mark in given]),
        text_array([SOURCES[mark.event] if mark.event else ANY for mark in given]),
        text_array([mark.left.value if mark.left else "" for mark in given]),
        text_array([mark.output or "" for mark in given]),
        text_array([kept(mark.error) for mark in given]),
        int4_array([-1 if mark.event is StepEvent.RESUME else mark.tries for mark in given]),
    ]


def settles(given: Sequence[Settle]) -> Values:
    """Encode the drivers of decided sagas, and the steps after their decisions."""
    named = [(each.word.life.txid, step) for each in given for step in each.steps]
    return [
        int8_array([each.word.life.txid for each in given]),
        int4_array([each.word.life.owner for each in given]),
        text_array([each.driver for each in given]),
        int8_array([txid for txid, _ in named]),
        *steps([step for _, step in named]),
    ]


def rests(given: Sequence[ReleaseSaga]) -> Values:
    """Encode sagas that are released."""
    return [
        int8_array([each.txid for each in given]),
        int4_array([each.owner for each in given]),
        float8_array([each.by.total_seconds() for each in given]),
        text_array([kept(each.why) for each in given]),
        bool_array([each.stalled for each in given]),
    ]


def closes(given: Sequence[Close]) -> Values:
    """Encode sagas that may be over."""
    return [int8_array([each.txid for each in given]), int4_array([each.owner for each in given])]
