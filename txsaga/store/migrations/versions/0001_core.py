"""The core: halves, decisions, log, ticks, keyed transactions, cursors."""

from alembic import op

revision = "0001"
down_revision = None

SQL = """
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
)
 WITH (fillfactor = 50);

CREATE TABLE doubt (
    txid BIGINT NOT NULL,
    pgroup INTEGER NOT NULL,
    keyed BOOLEAN DEFAULT false NOT NULL,
    check_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    checks INTEGER DEFAULT 0 NOT NULL,
    parked VARCHAR,
    PRIMARY KEY (txid)
);

CREATE INDEX ix_doubt_check_at ON doubt (check_at);

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
)
 PARTITION BY RANGE (txid);

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
)
 PARTITION BY RANGE (txid);

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
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE resource (
    id SERIAL NOT NULL,
    name VARCHAR NOT NULL,
    database UUID NOT NULL,
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
    PRIMARY KEY (txid),
    UNIQUE (pgroup, key, epoch)
);

CREATE INDEX tx_open ON tx (touched) WHERE state IN ('active', 'ended', 'prepared');

CREATE TABLE queue (
    qid SERIAL NOT NULL,
    topic INTEGER NOT NULL,
    idx INTEGER NOT NULL,
    tail BIGINT DEFAULT 0 NOT NULL,
    head BIGINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (qid),
    UNIQUE (topic, idx),
    FOREIGN KEY(topic) REFERENCES topic (id)
)
 WITH (fillfactor = 50);
"""


def upgrade() -> None:
    """Create the tables in the namespace on the search path."""
    op.execute(SQL)
