"""Steps of transactions, and the sagas that are not over."""

from alembic import op

revision = "0010"
down_revision = "0009"

SQL = """
CREATE TABLE step (
    txid BIGINT NOT NULL,
    number INTEGER NOT NULL,
    name VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    state VARCHAR NOT NULL CHECK (state IN ('started', 'done', 'failed', 'compensating', 'compensated',
        'compensation_failed', 'skipped')),
    kind VARCHAR NOT NULL CHECK (kind IN ('call', 'sql', 'http', 'message')),
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
    PRIMARY KEY (txid, number)
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

ALTER TABLE step ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON step USING ((SELECT everywhere()) OR ours(txid));
ALTER TABLE saga ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON saga USING ((SELECT everywhere()) OR ours(txid));
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(SQL)
