"""Sensors: they start and end in the triggerer, and hold no worker while they wait."""
