"""Flows whose steps run in processes of their own."""

from alembic import op

revision = "0009"
down_revision = "0008"

SQL = """
ALTER TABLE tx ADD COLUMN lease DOUBLE PRECISION;

ALTER TABLE branch ADD COLUMN decision SMALLINT CHECK (decision IN (1, 2));

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

ALTER TABLE flow_resource ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_resource USING ((SELECT everywhere()) OR ours(txid));
ALTER TABLE flow_step ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_step USING ((SELECT everywhere()) OR ours(txid));
ALTER TABLE flow_unit ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_unit USING ((SELECT everywhere()) OR ours(txid));
ALTER TABLE flow_statement ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON flow_statement USING ((SELECT everywhere()) OR ours(txid));
"""


def upgrade() -> None:
    """Create the tables."""
    op.execute(SQL)
