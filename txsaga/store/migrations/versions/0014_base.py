"""The first schema: that of the oldest store that is migrated."""

from pathlib import Path

from alembic import op

revision = "0014"
down_revision = None


def upgrade() -> None:
    """Create the tables and policies in the namespace on the search path."""
    op.execute(Path(__file__).with_suffix(".sql").read_text("utf-8"))
