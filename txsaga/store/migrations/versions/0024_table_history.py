"""The last transactions of a table are found by an index."""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Order the transactions of each table."""
    op.execute("DROP INDEX effect_table")
    op.execute(
        "CREATE INDEX effect_table ON effect (coalesce(payload ->> 'target', "
        "coalesce((payload -> 'name' ->> -2) || '.', '') || (payload -> 'name' ->> -1)), txid) "
        "WHERE kind IN ('table', 'rows')"
    )
