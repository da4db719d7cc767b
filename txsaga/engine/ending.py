"""
The end of a half by request: located by its message id, checked against the half, then decided.

UNKNOWN changes nothing: the half stays pending and is checked later. A request that does not fit its half
gets SYSTEM_ERROR with the reason and changes nothing either.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from txsaga.engine.kernel import Kernel
from txsaga.engine.pending import Pending
from txsaga.errors import EndRefused, UnknownTransaction
from txsaga.model.identity import HalfId
from txsaga.model.records import End, Standing
from txsaga.model.sending import EndHook, EndRequest

logger = logging.getLogger("txsaga")


class Endings:
    """Runs end requests, hooks around them."""

    def __init__(self, kernel: Kernel, hooks: Sequence[EndHook] = ()) -> None:
        self._kernel, self._hooks = kernel, tuple(hooks)

    def submit(self, request: EndRequest) -> Pending[Standing] | None:
        """Check a request and queue its decision; None for UNKNOWN, which decides nothing."""
        for hook in self._hooks:
            try:
                hook(request)
            except Exception:
                logger.exception("an end hook failed for transaction %s", request.transaction_id)
        end = self._end(request)
        return None if end is None else self._kernel.decides.submit(end)

    def _end(self, request: EndRequest) -> End | None:
        half = self._locate(request)
        if request.state_table_offset != half.txid:
            raise EndRefused("SYSTEM_ERROR", "The transaction state table offset wrong")
        if request.commit_log_offset != half.txid:
            raise EndRefused("SYSTEM_ERROR", "The commit log offset wrong")
        decision = request.state.decision
        if decision is None:
            return None
        group = self._kernel.store.registry.find_group(request.group)
        if group is None:
            raise EndRefused("SYSTEM_ERROR", f"The producer group wrong: {request.group!r} is not registered")
        return End(half.txid, group.id, request.token, decision, request.from_check)

    def _locate(self, request: EndRequest) -> HalfId:
        try:
            half = HalfId.decode(request.message_id)
        except UnknownTransaction as reason:
            raise EndRefused("SYSTEM_ERROR", f"Find prepared transaction message failed: {reason}") from reason
        identity = self._kernel.store.registry.identity
        if half.store != identity:
            raise EndRefused(
                "SYSTEM_ERROR",
                f"Find prepared transaction message failed: it lies in store {half.store}, this is {identity}",
            )
        return half
