"""A check that nothing could answer has the result NO_ANSWER; it was called NOBODY."""

from alembic import op

revision = "0021"
down_revision = "0020"

SQL = """
UPDATE tally SET answer = 'NO_ANSWER' WHERE answer = 'NOBODY';
UPDATE event SET what = 'CHECK NO_ANSWER' WHERE what = 'CHECK NOBODY';
UPDATE doubt SET remarks = replace(remarks::text, '"answer": "NOBODY"', '"answer": "NO_ANSWER"')::jsonb
 WHERE remarks::text LIKE '%"answer": "NOBODY"%';
"""


def upgrade() -> None:
    """Rename the result in counts, in timelines, and in the remarks of pending transactions."""
    op.execute(SQL)
