"""Rights: whose a producer group is, a table whose columns stand for the rights, and which rows each right reaches."""

from alembic import op

revision = "0006"
down_revision = "0005"

# The functions get their bodies from the program behind every migration; until then they say no. Policies bind only
# who was granted something: the owner of the tables passes them by.
SQL = """
CREATE TABLE may (
    producer BOOLEAN,
    consumer BOOLEAN,
    operator BOOLEAN,
    engine BOOLEAN
);

ALTER TABLE producer_group ADD COLUMN role VARCHAR;

CREATE FUNCTION everywhere() RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';
CREATE FUNCTION mine(integer) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';
CREATE FUNCTION ours(bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';

ALTER TABLE half ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON half FOR SELECT USING ((SELECT everywhere()) OR mine(pgroup));
CREATE POLICY added ON half FOR INSERT WITH CHECK (keyed AND n > 0 AND mine(pgroup) AND ours(txid));

ALTER TABLE op ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON op FOR SELECT USING (true);
CREATE POLICY added ON op FOR INSERT
    WITH CHECK (CASE WHEN keyed THEN ours(txid)
                ELSE (SELECT everywhere()) AND EXISTS (SELECT FROM half h WHERE h.txid = op.txid) END);

ALTER TABLE tx ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON tx FOR SELECT USING ((SELECT everywhere()) OR mine(pgroup));
CREATE POLICY added ON tx FOR INSERT WITH CHECK (mine(pgroup) AND txid = currval('tx_seq'));
CREATE POLICY changed ON tx FOR UPDATE USING (mine(pgroup)) WITH CHECK (mine(pgroup));

ALTER TABLE part ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON part USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE effect ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON effect USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE event ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON event USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE doubt ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON doubt USING ((SELECT everywhere()) OR mine(pgroup));

ALTER TABLE question ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON question USING ((SELECT everywhere()) OR mine(pgroup));

ALTER TABLE tally ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON tally USING ((SELECT everywhere()) OR mine(pgroup));

ALTER TABLE lease ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON lease FOR SELECT USING (true);
CREATE POLICY own ON lease USING (CASE
    WHEN kind LIKE 'checker:%' THEN mine(substr(kind, 9)::integer)
    WHEN kind LIKE 'member:%' THEN has_column_privilege(session_user, 'may'::regclass, 'consumer', 'SELECT')
         OR (SELECT everywhere())
    ELSE has_column_privilege(session_user, 'may'::regclass, 'engine', 'SELECT') END);

ALTER TABLE scheduled ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON scheduled USING ((SELECT everywhere()) OR mine(pgroup));

ALTER TABLE intent ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON intent FOR SELECT USING (true);
CREATE POLICY added ON intent FOR INSERT WITH CHECK (ours(txid));
CREATE POLICY changed ON intent FOR UPDATE USING (ours(txid)) WITH CHECK (ours(txid));
CREATE POLICY ended ON intent FOR DELETE USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE claim ENABLE ROW LEVEL SECURITY;
CREATE POLICY bound ON claim USING (true) WITH CHECK (txid IS NULL OR ours(txid));

ALTER TABLE producer_group ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON producer_group FOR SELECT USING (true);
CREATE POLICY added ON producer_group FOR INSERT WITH CHECK (role = session_user);
CREATE POLICY changed ON producer_group FOR UPDATE USING ((SELECT everywhere()));

ALTER TABLE consumer_group ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON consumer_group FOR SELECT USING (true);
CREATE POLICY added ON consumer_group FOR INSERT WITH CHECK (backout IS NULL OR (SELECT everywhere()));
CREATE POLICY changed ON consumer_group FOR UPDATE USING (true);
CREATE POLICY gone ON consumer_group FOR DELETE USING (true);
"""


def upgrade() -> None:
    """Create the table, the column and the policies."""
    op.execute(SQL)
