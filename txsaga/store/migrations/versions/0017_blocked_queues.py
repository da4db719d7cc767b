"""A queue that a stray row of the log blocks keeps what it was dispatched up to, and catches up from there."""

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the snapshot; no queue is blocked yet."""
    op.execute("ALTER TABLE queue ADD COLUMN reached pg_snapshot")
