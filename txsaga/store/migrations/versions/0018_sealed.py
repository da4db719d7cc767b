"""A transaction that its owner has closed and that is not decided is sealed: `ended` sounded decided."""

from alembic import op

revision = "0018"
down_revision = "0017"

SQL = """
ALTER TABLE tx DROP CONSTRAINT tx_state_check;
UPDATE tx SET state = 'sealed' WHERE state = 'ended';
ALTER TABLE tx ADD CONSTRAINT tx_state_check
    CHECK (state IN ('active', 'sealed', 'prepared', 'parked', 'committed', 'rolled_back'));
DROP INDEX tx_open;
CREATE INDEX tx_open ON tx (touched) WHERE state IN ('active', 'sealed', 'prepared');
"""


def upgrade() -> None:
    """Rename the state; few transactions are in it."""
    op.execute(SQL)
