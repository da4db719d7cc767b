"""Workloads beside their baselines, in the same minutes, alternating."""
