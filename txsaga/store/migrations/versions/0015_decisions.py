"""A decision is a domain: a constraint of its table is read anew by every statement that writes one."""

from alembic import op

revision = "0015"
down_revision = "0014"

# The domain gets its constraint when the columns have it: so no table is written anew.
SQL = """
CREATE DOMAIN tx_decision AS smallint;
DROP POLICY added ON op;
ALTER TABLE op DROP CONSTRAINT op_decision_check, ALTER decision TYPE tx_decision;
ALTER TABLE branch DROP CONSTRAINT branch_decision_check, ALTER decision TYPE tx_decision;
ALTER TABLE flow_unit DROP CONSTRAINT flow_unit_decision_check, ALTER decision TYPE tx_decision;
ALTER DOMAIN tx_decision ADD CHECK (VALUE IN (1, 2));
CREATE POLICY added ON op FOR INSERT
    WITH CHECK (CASE WHEN keyed THEN EXISTS (
                    SELECT FROM tx t WHERE t.txid = op.txid AND ours(t.txid)
                       AND t.state = CASE op.decision WHEN 1 THEN 'committed' ELSE 'rolled_back' END)
                ELSE (SELECT everywhere()) AND EXISTS (SELECT FROM half h WHERE h.txid = op.txid) END);
"""


def upgrade() -> None:
    """Make it one."""
    op.execute(SQL)
