"""Processes and servers that are killed: at every fact, under load, between a commit and its answer."""
