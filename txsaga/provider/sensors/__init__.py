"""Sensors: they start and end in the triggerer and use no worker while they wait."""
