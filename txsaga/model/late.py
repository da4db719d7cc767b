"""
Late bodies: a message whose body is known only in the local transaction.

The slot is kept before local work, the body goes into the evidence row in the local commit, and whoever
decides appends it. Without evidence there is nothing to deliver, so such a transaction can only roll back.
"""

from txsaga.model.layout import lay_out_columns
from txsaga.model.records import LateSlot, Row

LATE_PART = 2
"""Late bodies are a contribution of their own, behind the block's."""
FIRST_CHUNK = 1_000_000
"""Late chunks stand behind all that was sent before."""


def lay_out(slot: LateSlot, body: bytes) -> Row:
    """Lay out a late body as a chunk of its own."""
    columns = lay_out_columns(
        [body], key=[slot.key], tag=[slot.tag], headers=[slot.headers], ordering_key=[slot.ordering_key]
    )
    return Row(slot.qid, FIRST_CHUNK + slot.slot, 1, columns)
