"""Moments are kept: the offsets and snapshots of cuts and workspaces."""

from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Add the moments that are kept."""
    op.execute(
        "CREATE TABLE moment (kind varchar NOT NULL, name varchar NOT NULL, tick int8 NOT NULL, heads jsonb NOT NULL, "
        "tables jsonb NOT NULL, who varchar NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(), "
        "expires timestamptz, PRIMARY KEY (kind, name))"
    )
