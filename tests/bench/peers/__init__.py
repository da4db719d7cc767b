"""Peers, built from their own published modules where the tools for it are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.bench.report import absent


def unbuilt(peers: Mapping[str, Path | None]) -> list[str]:
    """Say of each peer that is not there how to build it."""
    line = "tests/bench/peers/{0}/build ~/.cache/txsaga-bench/{0}"
    return [absent(name, line.format(name)) for name, place in peers.items() if place is None]
