"""The home database: PostgreSQL 15 or later. Its connections, schema, migrations, rights and doctor."""
