"""An operator deletes groups: also the leases of members that are gone."""

from alembic import op

revision = "0022"
down_revision = "0021"

POLICY = """
CREATE POLICY ended ON lease FOR DELETE USING (kind LIKE 'member:%'
    AND (SELECT has_column_privilege(session_user, 'may'::regclass, 'operator', 'REFERENCES')));
"""


def upgrade() -> None:
    """Let operators delete the leases of members."""
    op.execute(POLICY)
