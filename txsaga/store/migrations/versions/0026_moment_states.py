"""What became of a workspace is kept with its moment, longer than the transactions that decided it."""

from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Add the state of a moment, the transaction that asks about it, and the snapshots that were published."""
    op.execute("ALTER TABLE moment ADD COLUMN state varchar, ADD COLUMN asked int8, ADD COLUMN published jsonb")
