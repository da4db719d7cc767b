"""The home database: PostgreSQL 15 or later, append-only on the hot path."""
