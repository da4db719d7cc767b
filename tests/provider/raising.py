"""A module that can't be imported for a reason of its own."""

raise RuntimeError("the bank is closed")
