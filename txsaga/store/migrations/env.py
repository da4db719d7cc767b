"""Alembic's entry point: migrates the connection that `migrate()` hands over, in its transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table_schema=context.config.attributes["namespace"],
    target_metadata=None,
    transactional_ddl=True,
)
context.run_migrations()
