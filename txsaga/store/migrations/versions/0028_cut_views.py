"""Programs read the snapshots and offsets of a cut as rows."""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Add the views, which show a reader what it may read in the table."""
    op.execute(
        "CREATE VIEW cut_table WITH (security_invoker) AS SELECT m.name AS cut, t.key AS name, "
        "(t.value ->> 'snapshot')::int8 AS snapshot, m.at, m.expires "
        "FROM moment m, jsonb_each(m.tables) t WHERE m.kind = 'cut'"
    )
    op.execute(
        "CREATE VIEW cut_queue WITH (security_invoker) AS SELECT m.name AS cut, h.key AS topic, "
        "(q.ordinality - 1)::int4 AS queue, q.value::int8 AS head, m.at, m.expires FROM moment m, "
        "jsonb_each(m.heads) h, jsonb_array_elements_text(h.value) WITH ORDINALITY q WHERE m.kind = 'cut'"
    )
