"""Cuts are kept under a name, with the offsets and snapshots of their moment."""

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Add the cuts that are kept."""
    op.execute(
        "CREATE TABLE kept_cut (name varchar PRIMARY KEY, tick int8 NOT NULL, heads jsonb NOT NULL, tables jsonb NOT NULL, "
        "who varchar NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), expires timestamptz)"
    )
