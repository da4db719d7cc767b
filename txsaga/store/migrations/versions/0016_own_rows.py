"""Whose rows are written: a login with two rights may write of others' transactions what one of the two may."""

from alembic import op

revision = "0016"
down_revision = "0015"

EVERYWHERE = "(SELECT everywhere())"
ENGINE, OPERATOR = (
    f"(SELECT has_column_privilege(session_user, 'may'::regclass, '{right}', 'REFERENCES'))"
    for right in ("engine", "operator")
)
NOBODY = "false"
# Who writes rows of others' transactions; what is left out nobody but the owner of the namespace does.
WRITERS = {
    "part": {"INSERT": ENGINE, "UPDATE": ENGINE},
    "effect": {"INSERT": NOBODY, "DELETE": EVERYWHERE},
    "ballot": {"INSERT": NOBODY},
    "vote": {"INSERT": OPERATOR},
    "branch": {"INSERT": NOBODY, "UPDATE": EVERYWHERE},
    "flow_resource": {"INSERT": NOBODY},
    "flow_step": {"INSERT": NOBODY, "UPDATE": ENGINE},
    "flow_unit": {"INSERT": NOBODY, "UPDATE": NOBODY},
    "flow_statement": {"INSERT": NOBODY, "DELETE": NOBODY},
    "step": {"INSERT": ENGINE, "UPDATE": EVERYWHERE},
    "saga": {"INSERT": ENGINE, "UPDATE": EVERYWHERE, "DELETE": ENGINE},
}
NAMES = {"INSERT": "added", "UPDATE": "changed", "DELETE": "ended"}

# `mine` and `ours` are the login's own groups from here on.
SQL = f"""
CREATE OR REPLACE FUNCTION is_chunk(integer, bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN false; END';

DROP POLICY added ON half;
CREATE POLICY added ON half FOR INSERT WITH CHECK (
    keyed AND EXISTS (SELECT FROM tx t WHERE t.txid = half.txid AND t.pgroup = half.pgroup)
    AND ({ENGINE} OR (mine(pgroup) AND ours(txid))) AND is_chunk(n, body)
    AND EXISTS (SELECT FROM queue q WHERE q.qid = half.qid) AND NOT EXISTS (SELECT FROM op o WHERE o.txid = half.txid));

DROP POLICY added ON op;
CREATE POLICY added ON op FOR INSERT
    WITH CHECK (CASE WHEN keyed THEN EXISTS (
                    SELECT FROM tx t WHERE t.txid = op.txid AND ({EVERYWHERE} OR ours(t.txid))
                       AND t.state = CASE op.decision WHEN 1 THEN 'committed' ELSE 'rolled_back' END)
                ELSE {EVERYWHERE} AND EXISTS (SELECT FROM half h WHERE h.txid = op.txid)
                   AND NOT EXISTS (SELECT FROM half h WHERE h.txid = op.txid AND h.keyed) END);

DROP POLICY changed ON tx;
CREATE POLICY changed ON tx FOR UPDATE USING ({EVERYWHERE} OR mine(pgroup)) WITH CHECK ({EVERYWHERE} OR mine(pgroup));

DROP POLICY own ON lease;
CREATE POLICY own ON lease USING ({ENGINE} OR CASE
    WHEN kind LIKE 'checker:%' THEN mine(substr(kind, 9)::integer)
    WHEN kind LIKE 'member:%' THEN has_column_privilege(session_user, 'may'::regclass, 'consumer', 'REFERENCES')
    WHEN kind = 'call' THEN ours(split_part(name, '/', 1)::bigint)
    ELSE false END);

DROP POLICY bound ON claim;
CREATE POLICY bound ON claim FOR UPDATE USING (txid IS NULL OR {EVERYWHERE} OR ours(txid))
    WITH CHECK (txid IS NULL OR {EVERYWHERE} OR ours(txid));

DROP POLICY added ON consumer_group;
CREATE POLICY added ON consumer_group FOR INSERT WITH CHECK (backout IS NULL OR {OPERATOR});

DROP POLICY new ON table_intent;
DROP POLICY taken ON table_intent;
CREATE POLICY new ON table_intent FOR INSERT WITH CHECK (ours(txid));
CREATE POLICY taken ON table_intent FOR UPDATE USING (true) WITH CHECK (ours(txid));
"""


def upgrade() -> None:
    """Tell the rights apart, command by command."""
    op.execute(SQL)
    for table, writers in WRITERS.items():
        op.execute(f"DROP POLICY own ON {table}")
        op.execute(f"CREATE POLICY seen ON {table} FOR SELECT USING ({EVERYWHERE} OR ours(txid))")
        for command, others in writers.items():
            asked = ["WITH CHECK"] if command == "INSERT" else ["USING"]
            asked += ["WITH CHECK"] if command == "UPDATE" else []
            rows = " ".join(f"{word} ({others} OR ours(txid))" for word in asked)
            op.execute(f"CREATE POLICY {NAMES[command]} ON {table} FOR {command} {rows}")
