"""Whole programs, run as a user runs them."""
