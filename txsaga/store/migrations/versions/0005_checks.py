"""Questions to the members of producer groups, what came of checks, and what a group says about its own."""

from alembic import op

revision = "0005"
down_revision = "0004"

SQL = """
ALTER TABLE producer_group ADD COLUMN checks JSONB DEFAULT '{}' NOT NULL;

ALTER TABLE tx ADD COLUMN run VARCHAR;

ALTER TABLE doubt ADD COLUMN resumed TIMESTAMP WITH TIME ZONE;
ALTER TABLE doubt ADD COLUMN remarks JSONB DEFAULT '[]' NOT NULL;

DROP INDEX ix_doubt_check_at;

CREATE INDEX doubt_due ON doubt (check_at) WHERE parked IS NULL;

CREATE TABLE question (
    txid BIGINT NOT NULL,
    pgroup INTEGER NOT NULL,
    member VARCHAR NOT NULL,
    asked TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    patience INTERVAL NOT NULL,
    until TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (txid)
);

CREATE INDEX question_member ON question (member, asked) WHERE until IS NULL;

CREATE TABLE tally (
    pgroup INTEGER NOT NULL,
    answer VARCHAR NOT NULL,
    n BIGINT NOT NULL,
    PRIMARY KEY (pgroup, answer)
);
"""


def upgrade() -> None:
    """Create the tables and the columns."""
    op.execute(SQL)
