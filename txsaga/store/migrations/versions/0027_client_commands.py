"""Operators ask clients that are connected to a gateway; what is answered goes with the question."""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Add what operators ask of clients, and what is answered."""
    op.execute(
        "CREATE TABLE client_command (nonce varchar NOT NULL PRIMARY KEY, client varchar, message varchar, "
        "asked timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
    op.execute(
        "CREATE TABLE client_answer (nonce varchar NOT NULL REFERENCES client_command ON DELETE CASCADE, "
        "client varchar NOT NULL, about jsonb NOT NULL, done boolean, said varchar, PRIMARY KEY (nonce, client))"
    )
