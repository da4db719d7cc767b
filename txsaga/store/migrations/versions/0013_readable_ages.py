"""The least age that a group says is a number: one that nobody can read would stop every round of check-back."""

from alembic import op

revision = "0013"
down_revision = "0012"

READABLE = """CASE WHEN checks ->> 'min_age' IS NULL THEN true
     WHEN jsonb_typeof(checks -> 'min_age') = 'number' THEN (checks ->> 'min_age')::float8 BETWEEN 0 AND 3153600000
     ELSE false END"""
SQL = f"""
UPDATE producer_group SET checks = checks - 'min_age' WHERE NOT ({READABLE});
ALTER TABLE producer_group ADD CHECK ({READABLE});
"""


def upgrade() -> None:
    """Take back what can't be read, and refuse it from now on."""
    op.execute(SQL)
