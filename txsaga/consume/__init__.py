"""Consuming: ticks publish decided messages, streams and work consumers read them, groups keep their positions."""
