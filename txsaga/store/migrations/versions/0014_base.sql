-- The schema of revision 0014: tables, then the rows that each right reaches. Later revisions alter it.

CREATE SEQUENCE tx_seq AS BIGINT CACHE 1;

CREATE TABLE checkpoint (
    name VARCHAR NOT NULL,
    txid BIGINT NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE cursor (
    grp VARCHAR NOT NULL,
    qid INTEGER NOT NULL,
    "off" BIGINT NOT NULL,
    owner VARCHAR,
    epoch BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (grp, qid)
) WITH (fillfactor = 50);

CREATE TABLE doubt (
    txid BIGINT NOT NULL,
    pgroup INTEGER NOT NULL,
    keyed BOOLEAN DEFAULT false NOT NULL,
    check_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    checks INTEGER DEFAULT 0 NOT NULL,
    parked VARCHAR,
    resumed TIMESTAMP WITH TIME ZONE,
    remarks JSONB DEFAULT '[]' NOT NULL,
    PRIMARY KEY (txid),
    CHECK (isfinite(check_at))
);
CREATE INDEX doubt_due ON doubt (check_at) WHERE parked IS NULL;

CREATE TABLE effect (
    txid BIGINT NOT NULL,
    seq INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    payload JSONB NOT NULL,
    PRIMARY KEY (txid, seq)
);

CREATE TABLE event (
    id BIGSERIAL NOT NULL,
    txid BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    what VARCHAR NOT NULL,
    who VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    login VARCHAR DEFAULT SESSION_USER,
    PRIMARY KEY (id)
);
CREATE INDEX ix_event_txid ON event (txid);

CREATE TABLE half (
    txid BIGINT NOT NULL,
    born TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    batch BIGINT DEFAULT 0 NOT NULL,
    pgroup INTEGER NOT NULL,
    qid INTEGER NOT NULL,
    part INTEGER DEFAULT 0 NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    chunk INTEGER NOT NULL,
    n INTEGER NOT NULL,
    evidence INTEGER,
    immunity INTEGER,
    keyed BOOLEAN DEFAULT false NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (txid, part, attempt, qid, chunk)
) PARTITION BY RANGE (txid);
ALTER TABLE half ALTER body SET STORAGE EXTERNAL;

CREATE TABLE intent (
    grp VARCHAR NOT NULL,
    qid INTEGER NOT NULL,
    start BIGINT NOT NULL,
    "end" BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    txid BIGINT NOT NULL,
    member VARCHAR NOT NULL,
    PRIMARY KEY (grp, qid)
);
CREATE INDEX ix_intent_txid ON intent (txid);

CREATE TABLE lease (
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    holder VARCHAR NOT NULL,
    epoch BIGINT DEFAULT 1 NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE log (
    qid INTEGER NOT NULL,
    base BIGINT NOT NULL,
    n INTEGER NOT NULL,
    txid BIGINT NOT NULL,
    part INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (qid, base)
);

CREATE TABLE op (
    txid BIGINT NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    decision SMALLINT NOT NULL CHECK (decision IN (1, 2)),
    keyed BOOLEAN DEFAULT false NOT NULL,
    from_check BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (txid)
) PARTITION BY RANGE (txid);
CREATE INDEX op_xid ON op (xid);

CREATE TABLE part (
    txid BIGINT NOT NULL,
    part INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (txid, part)
);

CREATE TABLE producer_group (
    id SERIAL NOT NULL,
    name VARCHAR NOT NULL,
    transactional BOOLEAN NOT NULL,
    checks JSONB DEFAULT '{}' NOT NULL,
    role VARCHAR,
    PRIMARY KEY (id),
    UNIQUE (name),
    CHECK (CASE WHEN checks ->> 'min_age' IS NULL THEN true
     WHEN jsonb_typeof(checks -> 'min_age') = 'number' THEN (checks ->> 'min_age')::float8 BETWEEN 0 AND 3153600000
     ELSE false END)
);

CREATE TABLE resource (
    id SERIAL NOT NULL,
    name VARCHAR NOT NULL,
    database UUID NOT NULL,
    enlisted BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name, database)
);

CREATE TABLE store (
    single BOOLEAN DEFAULT true NOT NULL CHECK (single),
    uuid UUID DEFAULT gen_random_uuid() NOT NULL,
    incarnation INTEGER DEFAULT 1 NOT NULL,
    births BIGINT[] DEFAULT '{}' NOT NULL,
    system_identifier BIGINT NOT NULL,
    timeline VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    token_inner BYTEA NOT NULL,
    token_outer BYTEA NOT NULL,
    token_key BYTEA NOT NULL,
    rejecting BOOLEAN DEFAULT false NOT NULL,
    cluster VARCHAR,
    PRIMARY KEY (single)
);

CREATE TABLE tick (
    id BIGINT NOT NULL,
    snap pg_snapshot NOT NULL,
    last_txid BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE topic (
    id SERIAL NOT NULL,
    name VARCHAR NOT NULL,
    type VARCHAR NOT NULL CHECK (type IN ('normal', 'fifo', 'delay', 'transaction')),
    retention_seconds BIGINT,
    retention_bytes BIGINT,
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE tx (
    txid BIGINT NOT NULL,
    pgroup INTEGER NOT NULL,
    key VARCHAR,
    epoch INTEGER NOT NULL,
    owner INTEGER DEFAULT 1 NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('active', 'ended', 'prepared', 'parked', 'committed', 'rolled_back')),
    evidence INTEGER,
    opened TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    touched TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    run VARCHAR,
    coordinator UUID,
    lease DOUBLE PRECISION,
    PRIMARY KEY (txid),
    UNIQUE (pgroup, key, epoch),
    CHECK (isfinite(touched))
);
CREATE INDEX tx_guest ON tx (txid) WHERE coordinator IS NOT NULL;
CREATE INDEX tx_open ON tx (touched) WHERE state IN ('active', 'ended', 'prepared');

CREATE TABLE queue (
    qid SERIAL NOT NULL,
    topic INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    tail BIGINT DEFAULT 0 NOT NULL,
    head BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (qid),
    UNIQUE (topic, idx),
    FOREIGN KEY (topic) REFERENCES topic (id)
) WITH (fillfactor = 50);

CREATE TABLE consumer_group (
    name VARCHAR NOT NULL,
    style VARCHAR NOT NULL CHECK (style IN ('stream', 'work')),
    ordered BOOLEAN DEFAULT false NOT NULL,
    max_attempts INTEGER,
    backout VARCHAR,
    dead_letters BOOLEAN DEFAULT true NOT NULL,
    first_retry INTERVAL NOT NULL,
    longest_retry INTERVAL NOT NULL,
    expires INTERVAL,
    seen TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (name),
    CHECK (isfinite(seen)),
    CHECK (first_retry BETWEEN interval '0' AND interval '36500 days'),
    CHECK (longest_retry BETWEEN interval '0' AND interval '36500 days'),
    CHECK (expires BETWEEN interval '0' AND interval '36500 days')
);

CREATE TABLE claim (
    grp VARCHAR NOT NULL,
    qid INTEGER NOT NULL,
    base BIGINT NOT NULL,
    size INTEGER NOT NULL,
    open BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    receipt BIGINT,
    member VARCHAR,
    key BIGINT,
    txid BIGINT,
    retry INTERVAL,
    history JSONB,
    message VARCHAR,
    born TIMESTAMP WITH TIME ZONE,
    body BYTEA,
    PRIMARY KEY (grp, qid, base, size),
    CHECK (retry BETWEEN interval '0' AND interval '36500 days')
) WITH (fillfactor = 70);
CREATE INDEX claim_due ON claim (grp, until);
CREATE INDEX claim_key ON claim (grp, qid, key, base) WHERE key IS NOT NULL;
CREATE INDEX claim_tx ON claim (txid) WHERE txid IS NOT NULL;

CREATE TABLE dead_letter (
    id BIGSERIAL NOT NULL,
    grp VARCHAR NOT NULL,
    topic VARCHAR NOT NULL,
    qid INTEGER NOT NULL,
    "off" BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    attempts INTEGER NOT NULL,
    cause VARCHAR NOT NULL,
    history JSONB NOT NULL,
    message VARCHAR NOT NULL,
    born TIMESTAMP WITH TIME ZONE NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (grp, qid, "off")
);

CREATE TABLE scheduled (
    txid BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    pgroup INTEGER NOT NULL,
    PRIMARY KEY (txid),
    CHECK (isfinite(at))
);
CREATE INDEX scheduled_due ON scheduled (at, txid);

CREATE TABLE weight (
    low BIGINT NOT NULL,
    topic INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    first TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (low, topic)
);

CREATE TABLE question (
    txid BIGINT NOT NULL,
    pgroup INTEGER NOT NULL,
    member VARCHAR NOT NULL,
    asked TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    patience INTERVAL NOT NULL,
    until TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (txid),
    CHECK (patience BETWEEN interval '0' AND interval '36500 days')
);
CREATE INDEX question_member ON question (member, asked) WHERE until IS NULL;

CREATE TABLE tally (
    pgroup INTEGER NOT NULL,
    answer VARCHAR NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (pgroup, answer)
);

CREATE TABLE may (
    producer BOOLEAN,
    consumer BOOLEAN,
    operator BOOLEAN,
    engine BOOLEAN
);

CREATE TABLE branch (
    txid BIGINT NOT NULL,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    resource INTEGER NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('active', 'ended', 'prepared', 'committed', 'rolled_back',
        'heuristic_committed', 'heuristic_rolled_back', 'heuristic_mixed', 'heuristic_hazard', 'forgotten')),
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    why VARCHAR,
    aux BOOLEAN DEFAULT false NOT NULL,
    decision SMALLINT CHECK (decision IN (1, 2)),
    PRIMARY KEY (txid, number, attempt)
);
CREATE INDEX branch_open ON branch (txid, number, attempt) WHERE state NOT IN ('committed', 'rolled_back', 'forgotten');

CREATE TABLE ballot (
    txid BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    rule VARCHAR NOT NULL CHECK (rule IN ('all', 'quorum', 'warn')),
    needed INTEGER,
    voters VARCHAR[] NOT NULL,
    PRIMARY KEY (txid, name)
);

CREATE TABLE vote (
    txid BIGINT NOT NULL,
    ballot VARCHAR NOT NULL,
    voter VARCHAR NOT NULL,
    yes BOOLEAN NOT NULL,
    evidence JSONB NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (txid, ballot, voter)
);

CREATE TABLE reservation (
    gid VARCHAR NOT NULL,
    txid BIGINT NOT NULL,
    resource VARCHAR NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('open', 'held', 'cancelling', 'confirmed', 'cancelled')),
    tried BOOLEAN DEFAULT false NOT NULL,
    arguments JSONB NOT NULL,
    PRIMARY KEY (gid)
);
CREATE INDEX reservation_txid ON reservation (txid);
CREATE INDEX reservation_held ON reservation (resource) WHERE state IN ('held', 'cancelling');

CREATE TABLE flow_resource (
    txid BIGINT NOT NULL,
    resource VARCHAR NOT NULL,
    lane BOOLEAN NOT NULL,
    budget FLOAT NOT NULL,
    PRIMARY KEY (txid, resource, lane)
);

CREATE TABLE flow_step (
    txid BIGINT NOT NULL,
    number INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('started', 'done', 'failed')),
    resource VARCHAR,
    hold VARCHAR CHECK (hold IN ('prepared', 'journal')),
    lane BOOLEAN NOT NULL,
    unit INTEGER NOT NULL,
    branch INTEGER,
    started TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    ended TIMESTAMP WITH TIME ZONE,
    mark VARCHAR DEFAULT '' NOT NULL,
    why VARCHAR DEFAULT '' NOT NULL,
    late BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (txid, number, attempt)
);
CREATE INDEX flow_step_held ON flow_step (txid) WHERE branch IS NOT NULL AND state = 'done';

CREATE TABLE flow_unit (
    txid BIGINT NOT NULL,
    resource VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    branch INTEGER,
    attempt INTEGER NOT NULL,
    decision SMALLINT CHECK (decision IN (1, 2)),
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (txid, resource, number)
);

CREATE TABLE flow_statement (
    txid BIGINT NOT NULL,
    step INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    resource VARCHAR NOT NULL,
    unit INTEGER NOT NULL,
    text VARCHAR NOT NULL,
    parameters JSONB NOT NULL,
    rows INTEGER,
    PRIMARY KEY (txid, step, seq)
);

CREATE TABLE step (
    txid BIGINT NOT NULL,
    number INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('started', 'done', 'failed', 'compensating', 'compensated',
        'compensation_failed', 'skipped')),
    kind VARCHAR NOT NULL,
    resource VARCHAR,
    input JSONB NOT NULL,
    compensation JSONB,
    action JSONB,
    output JSONB,
    "left" VARCHAR DEFAULT 'unknown' NOT NULL CHECK ("left" IN ('unknown', 'work', 'nothing')),
    error VARCHAR,
    attempts INTEGER DEFAULT 0 NOT NULL,
    due TIMESTAMP WITH TIME ZONE,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (txid, number),
    CHECK (kind IN ('call', 'sql', 'http', 'message', 'held'))
);

CREATE TABLE saga (
    txid BIGINT NOT NULL,
    ticket BIGINT NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL CHECK (isfinite(until)),
    driver VARCHAR,
    stalled BOOLEAN DEFAULT false NOT NULL,
    why VARCHAR,
    PRIMARY KEY (txid)
);

CREATE TABLE iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000),
    iceberg_type VARCHAR(5) DEFAULT 'TABLE',
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);

CREATE TABLE iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000),
    PRIMARY KEY (catalog_name, namespace, property_key)
);

CREATE TABLE table_intent (
    catalog VARCHAR NOT NULL,
    namespace VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    txid BIGINT NOT NULL,
    PRIMARY KEY (catalog, namespace, name, part)
);
CREATE INDEX ix_table_intent_txid ON table_intent (txid);

-- The functions get their bodies from the program after every migration; until then they say no.
CREATE FUNCTION everywhere() RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';
CREATE FUNCTION mine(integer) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';
CREATE FUNCTION ours(bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS 'BEGIN RETURN false; END';

-- Policies bind only logins that were granted something: the owner of the tables passes them by.
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
    WHEN kind = 'call' THEN (SELECT everywhere()) OR ours(split_part(name, '/', 1)::bigint)
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

ALTER TABLE reservation ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON reservation USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE ballot ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON ballot USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE vote ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON vote USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE branch ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON branch USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE flow_resource ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_resource USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE flow_step ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_step USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE flow_unit ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_unit USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE flow_statement ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_statement USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE step ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON step USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE saga ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON saga USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE table_intent ENABLE ROW LEVEL SECURITY;
CREATE POLICY seen ON table_intent FOR SELECT USING (true);
CREATE POLICY new ON table_intent FOR INSERT WITH CHECK ((SELECT everywhere()) OR ours(txid));
CREATE POLICY taken ON table_intent FOR UPDATE USING (true) WITH CHECK ((SELECT everywhere()) OR ours(txid));
