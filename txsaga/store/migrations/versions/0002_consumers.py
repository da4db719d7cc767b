"""Consumer groups with their policies, claims of the work style, dead letters."""

from alembic import op

revision = "0002"
down_revision = "0001"

SQL = """
CREATE TABLE consumer_group (
    name VARCHAR NOT NULL,
    style VARCHAR NOT NULL CHECK (style IN ('stream', 'work')),
    ordered BOOLEAN DEFAULT false NOT NULL,
    max_attempts INTEGER,
    backout VARCHAR,
    dead_letters BOOLEAN DEFAULT true NOT NULL,
    first_retry INTERVAL NOT NULL,
    longest_retry INTERVAL NOT NULL,
    PRIMARY KEY (name)
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
    PRIMARY KEY (grp, qid, base, size)
)
 WITH (fillfactor = 70);

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

INSERT INTO consumer_group (name, style, max_attempts, first_retry, longest_retry)
SELECT DISTINCT grp, 'stream', 16, interval '1 second', interval '5 minutes' FROM cursor;
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(SQL)
