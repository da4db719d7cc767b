"""Columns as Hypothesis draws them: one value per record, whole columns and single values may be absent."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from txsaga.core.chunk import COLUMNS, Column

BODIES = st.binary(max_size=40)


def of(count: int) -> st.SearchStrategy[list[Column]]:
    """Draw the columns of a chunk with so many records; the first one is always there."""
    bodies = st.lists(BODIES, min_size=count, max_size=count)
    values = st.lists(st.none() | BODIES, min_size=count, max_size=count)
    others = st.lists(st.none() | values, min_size=len(COLUMNS) - 1, max_size=len(COLUMNS) - 1)
    return st.builds(_joined, bodies, others)


def _joined(bodies: Sequence[bytes], others: Sequence[Column]) -> list[Column]:
    return [bodies, *others]


CHUNKS = st.integers(min_value=0, max_value=20).flatmap(of)
