"""Flows: one transaction whose steps run in processes of their own, and whose work is held until it is decided."""
