"""Branches that another store coordinates, and the cluster that a store belongs to."""

from alembic import op

revision = "0008"
down_revision = "0007"

SQL = """
ALTER TABLE tx ADD COLUMN coordinator UUID;
CREATE INDEX tx_guest ON tx (txid) WHERE coordinator IS NOT NULL;

ALTER TABLE store ADD COLUMN cluster VARCHAR;
"""


def upgrade() -> None:
    """Add the columns."""
    op.execute(SQL)
