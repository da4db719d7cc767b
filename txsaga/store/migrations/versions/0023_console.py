"""Transactions are found by the run of a DAG and by a table that they write; a group can be paused."""

from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Index what is searched for, and let groups be paused."""
    op.execute("CREATE INDEX tx_run ON tx (run) WHERE run IS NOT NULL")
    op.execute(
        "CREATE INDEX effect_table ON effect (coalesce(payload ->> 'target', "
        "coalesce((payload -> 'name' ->> -2) || '.', '') || (payload -> 'name' ->> -1))) "
        "WHERE kind IN ('table', 'rows')"
    )
    op.execute("CREATE INDEX op_rolled_back ON op (txid) WHERE decision = 2")
    op.execute("ALTER TABLE consumer_group ADD COLUMN paused boolean NOT NULL DEFAULT false")
