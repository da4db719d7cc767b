"""The web console: see every transaction, what it waits for, and settle it."""
