"""Peers, built from their own published modules where the tools for it are there."""
