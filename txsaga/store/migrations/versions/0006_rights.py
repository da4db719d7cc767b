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

ALTER TABLE event ADD COLUMN login VARCHAR;
ALTER TABLE event ALTER COLUMN login SET DEFAULT SESSION_USER;

CREATE FUNCTION everywhere() RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';
CREATE FUNCTION mine(integer) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';
CREATE FUNCTION ours(bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';

ALTER TABLE half ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON half FOR SELECT USING ((SELECT everywhere()) OR mine(pgroup));
CREATE POLICY added ON half FOR INSERT WITH CHECK (
    keyed AND mine(pgroup) AND ours(txid) AND n > 0 AND octet_length(body) >= 8
    AND n = get_byte(body, 4) + (get_byte(body, 5) << 8) + (get_byte(body, 6) << 16) + (get_byte(body, 7)::int8 << 24)
    AND EXISTS (SELECT FROM queue q WHERE q.qid = half.qid) AND NOT EXISTS (SELECT FROM op o WHERE o.txid = half.txid));

ALTER TABLE op ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON op FOR SELECT USING (true);
CREATE POLICY added ON op FOR INSERT
    WITH CHECK (CASE WHEN keyed THEN EXISTS (
                    SELECT FROM tx t WHERE t.txid = op.txid AND ours(t.txid)
                       AND t.state = CASE op.decision WHEN 1 THEN 'committed' ELSE 'rolled_back' END)
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
    WHEN kind LIKE 'member:%' THEN has_column_privilege(session_user, 'may'::regclass, 'consumer', 'REFERENCES')
         OR (SELECT everywhere())
    ELSE has_column_privilege(session_user, 'may'::regclass, 'engine', 'REFERENCES') END);

ALTER TABLE scheduled ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON scheduled USING ((SELECT everywhere()) OR mine(pgroup));

ALTER TABLE intent ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON intent FOR SELECT USING (true);
CREATE POLICY added ON intent FOR INSERT WITH CHECK (ours(txid));
CREATE POLICY changed ON intent FOR UPDATE USING (ours(txid)) WITH CHECK (ours(txid));
CREATE POLICY ended ON intent FOR DELETE USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE claim ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON claim FOR SELECT USING (true);
CREATE POLICY added ON claim FOR INSERT WITH CHECK (txid IS NULL OR ours(txid));
CREATE POLICY bound ON claim FOR UPDATE USING (txid IS NULL OR (SELECT everywhere()) OR ours(txid))
    WITH CHECK (txid IS NULL OR ours(txid));
CREATE POLICY ended ON claim FOR DELETE USING (txid IS NULL OR (SELECT everywhere()) OR ours(txid));

ALTER TABLE cursor ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON cursor FOR SELECT USING (true);
CREATE POLICY added ON cursor FOR INSERT WITH CHECK (EXISTS (SELECT FROM consumer_group g WHERE g.name = grp));
CREATE POLICY changed ON cursor FOR UPDATE USING (true);
CREATE POLICY gone ON cursor FOR DELETE USING (true);

ALTER TABLE producer_group ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON producer_group FOR SELECT USING (true);
CREATE POLICY added ON producer_group FOR INSERT WITH CHECK (role = session_user);
CREATE POLICY changed ON producer_group FOR UPDATE USING ((SELECT everywhere()));

ALTER TABLE consumer_group ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON consumer_group FOR SELECT USING (true);
CREATE POLICY added ON consumer_group FOR INSERT WITH CHECK (backout IS NULL OR (SELECT everywhere()));
CREATE POLICY changed ON consumer_group FOR UPDATE USING (true);
CREATE POLICY gone ON consumer_group FOR DELETE USING (true);

DO $$
DECLARE
    each regclass;
BEGIN
    FOR each IN SELECT inhrelid FROM pg_inherits WHERE inhparent IN ('half'::regclass, 'op'::regclass) LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', each);
    END LOOP;
END $$;

ALTER TABLE doubt ADD CHECK (isfinite(check_at));
ALTER TABLE tx ADD CHECK (isfinite(touched));
ALTER TABLE scheduled ADD CHECK (isfinite(at));
ALTER TABLE consumer_group ADD CHECK (isfinite(seen));
ALTER TABLE consumer_group ADD CHECK (first_retry BETWEEN interval '0' AND interval '36500 days');
ALTER TABLE consumer_group ADD CHECK (longest_retry BETWEEN interval '0' AND interval '36500 days');
ALTER TABLE consumer_group ADD CHECK (expires BETWEEN interval '0' AND interval '36500 days');
ALTER TABLE claim ADD CHECK (retry BETWEEN interval '0' AND interval '36500 days');
ALTER TABLE question ADD CHECK (patience BETWEEN interval '0' AND interval '36500 days');
"""


def upgrade() -> None:
    """Create the table, the column and the policies."""
    op.execute(SQL)
