"""Messages for later: halves without a decision, and when they are due."""

from alembic import op

revision = "0003"
down_revision = "0002"

SQL = """
CREATE TABLE scheduled (
    txid BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    pgroup INTEGER NOT NULL,
    PRIMARY KEY (txid)
);

CREATE INDEX scheduled_due ON scheduled (at, txid);
"""


def upgrade() -> None:
    """Create the table."""
    op.execute(SQL)
