"""The engine: one role or use case per file, pure over the ports."""
