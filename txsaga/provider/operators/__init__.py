"""Operators: each is a task that does one thing for a flow."""
