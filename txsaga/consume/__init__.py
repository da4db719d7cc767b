"""Consuming: ticks publish what is decided, streams and work consumers read it, groups remember how far."""
