"""One table of steps: every attempt, how its work is held, its journal, and what undoes it."""

from alembic import op

revision = "0019"
down_revision = "0018"

TABLE = """
ALTER TABLE step
    ADD COLUMN hold VARCHAR CHECK (hold IN ('commit', 'prepared', 'journal')),
    ADD COLUMN lane BOOLEAN DEFAULT false NOT NULL,
    ADD COLUMN unit INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN branch INTEGER,
    ADD COLUMN mark VARCHAR DEFAULT '' NOT NULL,
    ADD COLUMN journal JSONB,
    ADD COLUMN described_on VARCHAR,
    ADD COLUMN tries INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN started TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ADD COLUMN late BOOLEAN DEFAULT false NOT NULL,
    ALTER COLUMN kind DROP NOT NULL,
    ALTER COLUMN input DROP NOT NULL;
ALTER TABLE step DROP CONSTRAINT step_pkey, ADD PRIMARY KEY (txid, number, attempt);
UPDATE step SET tries = attempts, hold = 'commit', started = at;
ALTER TABLE step DROP COLUMN attempts;
"""

# What undoes a step moves to its last attempt, whose state it has until its compensation begins; where it was described
# for another attempt, it keeps the resource that it was described for.
LAST = """
UPDATE step s
   SET attempt = f.attempt, lane = f.lane, unit = f.unit, branch = f.branch, mark = f.mark, late = f.late,
       hold = coalesce(f.hold, 'commit'), started = f.started,
       resource = CASE WHEN f.attempt = s.attempt THEN coalesce(f.resource, s.resource) ELSE f.resource END,
       described_on = CASE WHEN f.attempt <> s.attempt THEN coalesce(s.resource, '') END,
       state = CASE WHEN s.state IN ('started', 'done', 'failed') THEN f.state ELSE s.state END,
       at = CASE WHEN s.state IN ('started', 'done', 'failed') THEN coalesce(f.ended, f.started) ELSE s.at END,
       error = CASE WHEN s.state IN ('started', 'done', 'failed') THEN nullif(f.why, '')
                    ELSE coalesce(s.error, nullif(f.why, '')) END,
       "left" = CASE WHEN f.state = 'done' AND s.state NOT IN ('compensated', 'skipped') THEN 'work' ELSE s."left" END
  FROM flow_step f
 WHERE (f.txid, f.number) = (s.txid, s.number)
   AND NOT EXISTS (SELECT FROM flow_step n
                    WHERE n.txid = f.txid AND n.number = f.number AND n.attempt > f.attempt);
"""
OTHERS = """
INSERT INTO step (txid, number, attempt, name, state, hold, resource, lane, unit, branch, mark, "left", error, started,
                  at, late)
SELECT f.txid, f.number, f.attempt, f.name, f.state, f.hold, f.resource, f.lane, f.unit, f.branch, f.mark,
       CASE f.state WHEN 'done' THEN 'work' ELSE 'unknown' END, nullif(f.why, ''), f.started,
       coalesce(f.ended, f.started), f.late
  FROM flow_step f
    ON CONFLICT DO NOTHING;
"""
JOURNALS = """
UPDATE step s SET journal = j.statements
  FROM flow_step f
  JOIN (SELECT txid, step, jsonb_agg(jsonb_build_object('text', text, 'parameters', parameters, 'rows', rows)
                                     ORDER BY seq) AS statements
          FROM flow_statement GROUP BY txid, step) j ON (j.txid, j.step) = (f.txid, f.number)
 WHERE f.state = 'done' AND (s.txid, s.number, s.attempt) = (f.txid, f.number, f.attempt);
DROP TABLE flow_statement;
DROP TABLE flow_step;
"""

# A producer of other groups that is an engine or an operator, too, changes of their steps only what these two may.
GUARD = """
CREATE OR REPLACE FUNCTION keep_step() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER own BEFORE UPDATE OF kind, input, compensation, mark, journal ON step
    FOR EACH ROW WHEN (row_security_active('step'::regclass) AND NOT ours(OLD.txid)) EXECUTE FUNCTION keep_step();
DROP POLICY added ON step;
CREATE POLICY added ON step FOR INSERT WITH CHECK (ours(txid) OR (
    hold = 'commit' AND branch IS NULL AND mark = '' AND NOT lane
    AND (SELECT has_column_privilege(session_user, 'may'::regclass, 'engine', 'REFERENCES'))));
"""


def upgrade() -> None:
    """Move the rows; those of open transactions keep all that their end needs."""
    for sql in (TABLE, LAST, OTHERS, JOURNALS, GUARD):
        op.execute(sql)
