"""Operators: each a task that does one thing for a flow."""
