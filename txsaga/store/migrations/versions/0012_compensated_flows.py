"""Steps of flows with what undoes them."""

from alembic import op

revision = "0012"
down_revision = "0011"

SQL = """
ALTER TABLE step DROP CONSTRAINT step_kind_check;
ALTER TABLE step ADD CHECK (kind IN ('call', 'sql', 'http', 'message', 'held'));
"""


def upgrade() -> None:
    """Let steps be held by their flow."""
    op.execute(SQL)
