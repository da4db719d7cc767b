"""Retention by size, and groups that nobody reads expire."""

from alembic import op

revision = "0004"
down_revision = "0003"

# Groups from before count as seen today: they have the whole time to come back.
SQL = """
CREATE TABLE weight (
    low BIGINT NOT NULL,
    topic INTEGER NOT NULL,
    bytes BIGINT NOT NULL,
    first TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (low, topic)
);

ALTER TABLE consumer_group ADD COLUMN expires INTERVAL;

ALTER TABLE consumer_group ADD COLUMN seen TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL;

UPDATE consumer_group SET expires = interval '30 days';
"""


def upgrade() -> None:
    """Create the table and the columns."""
    op.execute(SQL)
