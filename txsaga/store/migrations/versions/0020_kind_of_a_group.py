"""A producer group without a kind: producers with checkers, and sagas, join any group."""

from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Let a group have no kind; those with checkers so far have none, since which had listeners is not known."""
    op.execute("ALTER TABLE producer_group ALTER COLUMN transactional DROP NOT NULL")
    op.execute("UPDATE producer_group SET transactional = NULL WHERE transactional")
