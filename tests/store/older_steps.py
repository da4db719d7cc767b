"""
The tables of steps as programs wrote them before there was one: what a migration finds.

What undoes a step stayed as its first attempt had written it if a later one did not describe it anew.
"""

from __future__ import annotations

import re

from tests.scene.stored import Stored
from txsaga.store import migrate

BASE = next((migrate.MIGRATIONS / "versions").glob("0014_*.sql")).read_text("utf-8")
TABLES = "".join(re.findall(r"^CREATE TABLE flow_(?:step|statement) .*?^\);\n", BASE, re.MULTILINE | re.DOTALL))
TABLES += """
INSERT INTO flow_step
SELECT txid, number, name, attempt,
       CASE WHEN s.state IN ('started', 'done', 'failed') THEN s.state WHEN "left" = 'work' THEN 'done'
            WHEN error IS NOT NULL THEN 'failed' ELSE 'started' END,
       CASE hold WHEN 'commit' THEN NULL ELSE resource END, nullif(hold, 'commit'), lane, unit, branch, started,
       CASE WHEN s.state <> 'started' THEN at END, mark, CASE WHEN "left" = 'work' THEN '' ELSE coalesce(error, '') END,
       late
  FROM step s JOIN tx USING (txid) WHERE lease IS NOT NULL;
INSERT INTO flow_statement
SELECT txid, number, seq, resource, unit, said ->> 'text', said -> 'parameters', (said ->> 'rows')::int
  FROM step, jsonb_array_elements(journal) WITH ORDINALITY AS j (said, seq);
DELETE FROM step WHERE kind IS NULL;
UPDATE step SET resource = nullif(described_on, '') WHERE described_on IS NOT NULL;
DROP TRIGGER own ON step;
DROP FUNCTION keep_step();
DROP POLICY added ON step;
CREATE POLICY added ON step FOR INSERT WITH CHECK (ours(txid));
ALTER TABLE step DROP CONSTRAINT step_pkey, ADD PRIMARY KEY (txid, number);
ALTER TABLE step RENAME COLUMN tries TO attempts;
ALTER TABLE step
    DROP COLUMN hold, DROP COLUMN lane, DROP COLUMN unit, DROP COLUMN branch, DROP COLUMN mark, DROP COLUMN journal,
    DROP COLUMN started, DROP COLUMN late, DROP COLUMN described_on,
    ALTER COLUMN kind SET NOT NULL, ALTER COLUMN input SET NOT NULL;
UPDATE step s SET attempt = f.attempt, state = 'failed', "left" = 'unknown', error = f.why
  FROM flow_step f WHERE (f.txid, f.number) = (s.txid, s.number) AND f.attempt < s.attempt AND f.state = 'failed';
DROP POLICY ended ON lease;
DROP INDEX tx_run;
DROP INDEX op_rolled_back;
DROP INDEX effect_table;
ALTER TABLE consumer_group DROP COLUMN paused;
DROP TABLE moment;
DROP TABLE client_answer;
DROP TABLE client_command;
UPDATE alembic_version SET version_num = '0018';
"""


def take_back(stored: Stored) -> None:
    """Write all steps as the program before 0019 kept them."""
    for sql in TABLES.split(";\n")[:-1]:
        stored.rows(sql)
