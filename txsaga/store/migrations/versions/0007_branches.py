"""Branches of coordinated transactions."""

from alembic import op

revision = "0007"
down_revision = "0006"

SQL = """
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

ALTER TABLE reservation ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON reservation USING ((SELECT everywhere()) OR ours(txid));
ALTER TABLE ballot ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON ballot USING ((SELECT everywhere()) OR ours(txid));
ALTER TABLE vote ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON vote USING ((SELECT everywhere()) OR ours(txid));

ALTER TABLE resource ADD COLUMN enlisted BOOLEAN DEFAULT false NOT NULL;

ALTER TABLE branch ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON branch USING ((SELECT everywhere()) OR ours(txid));
"""


def upgrade() -> None:
    """Create the table."""
    op.execute(SQL)
