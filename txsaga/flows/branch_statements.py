"""
SQL about branches; each write handles any number of transactions.

What is bound to a transaction (ballots, late bodies, offsets, messages) is applied by the one decision path only: such
a transaction is left unchanged here, and the caller decides it there.
"""

from txsaga.checkback.sweep_statements import INTO, KEPT
from txsaga.core.lifecycle import TxState
from txsaga.flows import branch
from txsaga.flows.branch import BRANCH, NOTHING_DONE, BranchEvent, BranchState


def _listed(states: tuple[str, ...]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


OPEN = _listed(tuple(state for state in BranchState if (state, BranchEvent.ROLL_BACK) in BRANCH.moves))


def _known(where: str) -> str:
    """Look up, row by row, the rows that an upsert changes.

    A query plan from a store's early days may join by reading the whole table. A row deleted meanwhile would come back:
    only branches that are over are deleted, and those are not changed here.
    """
    return f"""CROSS JOIN LATERAL (SELECT resource FROM {{s}}.branch k
       WHERE k.txid = n.txid AND k.number = n.number AND k.attempt = n.attempt AND {where} OFFSET 0) k"""


def _waits(note: str, row: str) -> str:
    """Return the SQL for whether a note changes a row: others must not be locked, as their holder may delete them."""
    return f"""CASE {note}.state WHEN '{BranchState.COMMITTED}'
         THEN {row}.state = '{BranchState.PREPARED}' OR ({row}.aux AND {row}.state = '{BranchState.ACTIVE}')
         WHEN '{BranchState.FORGOTTEN}' THEN {row}.state LIKE 'heuristic%' ELSE {row}.state IN ({OPEN}) END
   AND ({row}.aux OR {row}.decision IS NOT NULL
        OR (SELECT o.txid FROM {{s}}.op o WHERE o.txid = {note}.txid) IS NOT NULL)"""


WHY = f"CASE {{}}.state WHEN '{BranchState.COMMITTED}' THEN '{NOTHING_DONE}' END"
"""Why a branch is over as soon as the decision names it: only a read-only one is."""

BEGIN_TYPES = ("int4[]", "text[]", "int4[]", "int4[]", "int4[]")
BEGIN_ANSWERS = "ord int8, txid int8, token bytea"
BEGIN = f"""
WITH x AS MATERIALIZED (
    SELECT nextval('{{s}}.tx_seq') AS txid, r.*
      FROM unnest($1, $2) WITH ORDINALITY AS r(pgroup, run, ord) CROSS JOIN {{s}}.store WHERE NOT store.rejecting),
 t AS (INSERT INTO {{s}}.tx (txid, pgroup, epoch, state, run)
    SELECT txid, pgroup, 1, '{TxState.ACTIVE}', nullif(run, '') FROM x),
 b AS (INSERT INTO {{s}}.branch (txid, number, attempt, resource, state)
    SELECT x.txid, n.number, 1, n.resource, '{BranchState.ACTIVE}'
      FROM x JOIN unnest($3, $4, $5) AS n(ord, number, resource) ON n.ord = x.ord)
SELECT x.ord, x.txid, {{token}} FROM x"""

# A statement of its own: only the next statement sees what was bound under the lock before.
LOCK = "SELECT txid FROM {s}.tx WHERE txid = ANY ($1) ORDER BY txid FOR UPDATE"

RESOLVE_TYPES = (
    *("int8[]", "int4[]", "int4[]", "text[]", "text[]", "int4[]"),
    *("int8[]", "int4[]", "int4[]", "int4[]", "bytea[]"),
    *("int8[]", "int4[]", "int4[]", "text[]"),
)
RESOLVE_ANSWERS = "txid int8"
RESOLVE = f"""
WITH r AS MATERIALIZED (
    SELECT DISTINCT ON (r.txid) r.*, k.pgroup, k.epoch
      FROM unnest($1, $2, $3, $4, $5, $6) AS r(txid, owner, decision, who, why, evidence)
     CROSS JOIN LATERAL (SELECT pgroup, epoch FROM {{s}}.tx k WHERE k.txid = r.txid AND k.owner = r.owner OFFSET 0) k),
 u AS (INSERT INTO {{s}}.tx (txid, pgroup, epoch, owner, evidence, state)
    SELECT txid, pgroup, epoch, owner, nullif(evidence, 0),
           CASE decision WHEN 1 THEN '{TxState.COMMITTED}' WHEN 2 THEN '{TxState.ROLLED_BACK}'
                         ELSE '{TxState.ENDED}' END
      FROM r
        ON CONFLICT (txid) DO UPDATE
       SET touched = clock_timestamp(), evidence = coalesce(excluded.evidence, tx.evidence), state = excluded.state
     WHERE tx.owner = excluded.owner
       AND (tx.state = '{TxState.ACTIVE}' OR (tx.state = '{TxState.ENDED}' AND excluded.state <> '{TxState.ENDED}'))
       AND (excluded.state = '{TxState.ENDED}' OR coalesce(
            (SELECT b.txid FROM {{s}}.ballot b WHERE b.txid = excluded.txid LIMIT 1),
            (SELECT e.txid FROM {{s}}.effect e WHERE e.txid = excluded.txid LIMIT 1),
            (SELECT i.txid FROM {{s}}.intent i WHERE i.txid = excluded.txid LIMIT 1),
            (SELECT c.txid FROM {{s}}.claim c WHERE c.txid = excluded.txid LIMIT 1)) IS NULL)
    RETURNING tx.txid, tx.pgroup, tx.owner),
 m AS (SELECT u.*, r.decision, r.who, r.why FROM u JOIN r USING (txid)),
 h AS (INSERT INTO {{s}}.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
    SELECT m.txid, m.pgroup, h.qid, 1, m.owner, h.chunk, h.n, true, h.body
      FROM unnest($7, $8, $9, $10, $11) AS h(txid, qid, chunk, n, body) JOIN m ON m.txid = h.txid),
 p AS (INSERT INTO {{s}}.part (txid, part, attempt)
    SELECT m.txid, 1, m.owner FROM m
     WHERE m.txid = ANY ($7) OR EXISTS (SELECT FROM {{s}}.part o WHERE o.txid = m.txid AND o.part = 1)
        ON CONFLICT (txid, part) DO UPDATE SET attempt = excluded.attempt),
 v AS (INSERT INTO {{s}}.branch (txid, number, attempt, resource, state, why)
    SELECT n.txid, n.number, n.attempt, k.resource, n.state, {WHY.format("n")}
      FROM (SELECT DISTINCT ON (txid, number, attempt) *
              FROM unnest($12, $13, $14, $15) AS n(txid, number, attempt, state)) n JOIN m USING (txid)
     {_known(f"k.state IN ({OPEN})")}
        ON CONFLICT (txid, number, attempt) DO UPDATE
       SET state = excluded.state, why = excluded.why, at = clock_timestamp()
     WHERE branch.state IN ({OPEN})),
 o AS (INSERT INTO {{s}}.op (txid, decision, keyed) SELECT txid, decision, true FROM m WHERE decision <> 0),
 e AS (INSERT INTO {{s}}.event (txid, what, who, why)
    SELECT txid, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, who, why FROM m WHERE decision <> 0),
 gone AS (DELETE FROM {{s}}.doubt WHERE txid IN (SELECT txid FROM m) RETURNING txid, remarks),
 k AS ({INTO}
{KEPT})
SELECT txid FROM m"""

# A number kept for hours may lie in a dropped partition and would never be decided. Partitions ahead are created in
# time.
HAS_PLACE = """(to_regclass('{{s}}.op_' || {0} / {{span}}) IS NOT NULL
       OR {0} / {{span}} >= (SELECT last_value / {{span}} FROM {{s}}.tx_seq))"""

# For a transaction without a row: the first to write one wins, an owner or a fence. The token shows that the number was
# assigned to this group for that: it signs a value that is no group's number, so it can't be requested, and neither a
# future number nor another's half message can be decided by it.
CONCLUDE_TYPES = (
    *("int8[]", "int4[]", "bytea[]", "int4[]", "text[]", "text[]", "int4[]"),
    *("int8[]", "int4[]", "int4[]", "int4[]", "bytea[]"),
    *("int8[]", "int4[]", "int4[]", "text[]"),
)
CONCLUDE_ANSWERS = "txid int8, done bool"
OPENED, ENDED = 3, 0
"""The decision column of undecided transactions: open, or sealed."""
CONCLUDE = f"""
WITH r AS MATERIALIZED (
    SELECT r.* FROM unnest($1, $2, $3, $4, $5, $6, $7) AS r(txid, pgroup, given, decision, who, why, evidence)
     WHERE r.given = {{given}} AND {HAS_PLACE.format("r.txid")}),
 t AS (INSERT INTO {{s}}.tx (txid, pgroup, epoch, state, evidence)
    SELECT txid, pgroup, 1, CASE decision WHEN 1 THEN '{TxState.COMMITTED}' WHEN 2 THEN '{TxState.ROLLED_BACK}'
           WHEN {OPENED} THEN '{TxState.ACTIVE}' ELSE '{TxState.ENDED}' END, nullif(evidence, 0)
      FROM r ORDER BY txid
        ON CONFLICT (txid) DO NOTHING RETURNING tx.txid),
 m AS (SELECT r.* FROM r JOIN t ON t.txid = r.txid),
 h AS (INSERT INTO {{s}}.half (txid, pgroup, qid, part, attempt, chunk, n, keyed, body)
    SELECT m.txid, m.pgroup, h.qid, 1, 1, h.chunk, h.n, true, h.body
      FROM unnest($8, $9, $10, $11, $12) AS h(txid, qid, chunk, n, body) JOIN m ON m.txid = h.txid),
 p AS (INSERT INTO {{s}}.part (txid, part, attempt) SELECT txid, 1, 1 FROM m WHERE txid = ANY ($8)),
 b AS (INSERT INTO {{s}}.branch (txid, number, attempt, resource, state, why)
    SELECT m.txid, n.number, 1, n.resource, n.state, {WHY.format("n")}
      FROM unnest($13, $14, $15, $16) AS n(txid, number, resource, state) JOIN m ON m.txid = n.txid),
 o AS (INSERT INTO {{s}}.op (txid, decision, keyed) SELECT txid, decision, true FROM m WHERE decision IN (1, 2)),
 e AS (INSERT INTO {{s}}.event (txid, what, who, why)
    SELECT txid, CASE decision WHEN 1 THEN 'COMMIT' ELSE 'ROLLBACK' END, who, why FROM m WHERE decision IN (1, 2))
SELECT r.txid, t.txid IS NOT NULL FROM r LEFT JOIN t ON t.txid = r.txid"""

NUMBERS_TYPES = ("int4", "int4")
NUMBERS_ANSWERS = "txid int8, token bytea, given bytea"
NUMBERS = """
WITH x AS MATERIALIZED (
    SELECT nextval('{s}.tx_seq') AS txid, $1 AS pgroup
      FROM generate_series(1, $2) CROSS JOIN {s}.store WHERE NOT store.rejecting)
SELECT x.txid, {token}, {given} FROM x"""

# Runs before a fence, which must not wait for an owner's decision in progress: others' calls would wait, too.
WAIT_SHORTLY = "SELECT set_config('lock_timeout', '100ms', true)"

# A fence belongs to no group, because only its number is known. Below the lowest partition no decision can be written.
FENCE_TYPES = ("int8[]", "text[]", "text[]")
FENCE_ANSWERS = "txid int8"
FENCE = f"""
WITH l AS MATERIALIZED (
    SELECT min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM [(]''([0-9]+)''[)]'))[1]::int8) AS txid
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '{{s}}.op'::regclass),
 f AS MATERIALIZED (SELECT * FROM unnest($1, $2, $3) AS f(txid, who, why)),
 t AS (INSERT INTO {{s}}.tx (txid, pgroup, epoch, state) SELECT DISTINCT txid, 0, 1, '{TxState.ROLLED_BACK}'
      FROM f WHERE f.txid >= (SELECT l.txid FROM l) ORDER BY txid
        ON CONFLICT (txid) DO NOTHING RETURNING tx.txid),
 o AS (INSERT INTO {{s}}.op (txid, decision, keyed, from_check) SELECT txid, 2, true, true FROM t),
 e AS (INSERT INTO {{s}}.event (txid, what, who, why)
    SELECT DISTINCT ON (f.txid) f.txid, 'ROLLBACK', f.who, f.why FROM f JOIN t ON t.txid = f.txid)
SELECT txid FROM t UNION ALL SELECT f.txid FROM f JOIN l ON f.txid < l.txid"""

# Why an owner's request changed nothing: the final decision, or the transaction's current owner.
STANDING = """
SELECT tx.txid, o.decision, tx.owner, tx.state, tx.pgroup FROM {s}.tx LEFT JOIN {s}.op o ON o.txid = tx.txid
 WHERE tx.txid = ANY ($1)"""

NOTE_TYPES = ("int8[]", "int4[]", "int4[]", "text[]", "text[]")
NOTE_ANSWERS = "txid int8, number int4, attempt int4"
NOTE = f"""
INSERT INTO {{s}}.branch AS b (txid, number, attempt, resource, state, why)
SELECT DISTINCT ON (n.txid, n.number, n.attempt)
       n.txid, n.number, n.attempt, k.resource, n.state, nullif(n.why, '')
  FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS n(txid, number, attempt, state, why, ord)
 {_known(_waits("n", "k"))}
 ORDER BY n.txid, n.number, n.attempt, n.ord
    ON CONFLICT (txid, number, attempt) DO UPDATE SET state = excluded.state, why = excluded.why, at = clock_timestamp()
 WHERE {_waits("excluded", "b")}
RETURNING b.txid, b.number, b.attempt"""

WAITING = "b.state NOT IN ('committed', 'rolled_back', 'forgotten')"
"""The condition of its partial index."""

DUE = "coalesce(b.decision, o.decision)"
"""The decision for a branch: its own, for a unit of a lane, or its transaction's."""

BRANCHES = """
SELECT b.txid, b.number, b.attempt, r.name, b.state, b.at, coalesce(b.why, ''), b.resource, b.aux
  FROM {s}.branch b JOIN {s}.resource r ON r.id = b.resource"""
BEHIND = "(b.txid, b.number, b.attempt) > (:txid, :number, :attempt)"
NAMED = "(CAST(:resource AS text) IS NULL OR r.name = :resource)"
ORDER = "ORDER BY b.txid, b.number, b.attempt LIMIT :limit"
OF = BRANCHES + " WHERE b.txid = :txid ORDER BY b.number, b.attempt"
WRITTEN = """
SELECT t.txid, t.owner, o.decision FROM unnest(CAST(:txids AS int8[])) AS n(txid) JOIN {s}.tx t ON t.txid = n.txid
  LEFT JOIN {s}.op o ON o.txid = t.txid"""
WRITTEN_BRANCHES = BRANCHES + " WHERE b.txid = ANY (CAST(:txids AS int8[])) ORDER BY b.txid, b.number, b.attempt"
OVER = f"""
SELECT b.txid, b.number, b.attempt FROM {{s}}.branch b
  JOIN unnest(CAST(:txids AS int8[]), CAST(:numbers AS int4[]), CAST(:attempts AS int4[])) AS p(txid, number, attempt)
    ON b.txid = p.txid AND b.number = p.number AND b.attempt = p.attempt
 WHERE b.state IN ({_listed(tuple(branch.OVER))})"""
LISTED = f"{BRANCHES} WHERE b.state = ANY (:states) AND {NAMED} AND {BEHIND} {ORDER}"
UNFINISHED = f"""
SELECT b.txid, b.number, b.attempt, r.name, b.state, b.at, coalesce(b.why, ''), b.resource, b.aux,
       {DUE}
  FROM {{s}}.branch b JOIN {{s}}.resource r ON r.id = b.resource LEFT JOIN {{s}}.op o ON o.txid = b.txid
 WHERE {WAITING} AND b.state IN ({OPEN}) AND {BEHIND} AND {DUE} IS NOT NULL
   AND b.at <= clock_timestamp() - CAST(:older AS interval) {ORDER}"""
BACKLOG = f"""
SELECT r.name, count(*) FILTER (WHERE b.state IN ({OPEN}) AND {DUE} IS NULL),
       count(*) FILTER (WHERE b.state IN ({OPEN}) AND {DUE} IS NOT NULL),
       max(clock_timestamp() - b.at) FILTER (WHERE b.state IN ({OPEN}) AND {DUE} IS NOT NULL),
       count(*) FILTER (WHERE b.state NOT IN ({OPEN}))
  FROM {{s}}.resource r LEFT JOIN {{s}}.branch b ON b.resource = r.id AND {WAITING}
  LEFT JOIN {{s}}.op o ON o.txid = b.txid
 WHERE r.enlisted GROUP BY r.name ORDER BY r.name"""

GUESTS = f"""
SELECT txid, key, coordinator, state FROM {{s}}.tx
 WHERE coordinator IS NOT NULL AND coordinator = coalesce(CAST(:coordinator AS uuid), coordinator) AND txid > :after
   AND state IN ('{TxState.PREPARED}', '{TxState.COMMITTED}', '{TxState.ROLLED_BACK}')
 ORDER BY txid LIMIT :limit"""
