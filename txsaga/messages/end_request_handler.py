"""
Ends a half by request: finds it by its message id, checks the request against the half, then decides it.

UNKNOWN changes nothing: the half stays pending and is checked later. A request that does not match its half gets
SYSTEM_ERROR with the reason and changes nothing either. If a request never arrives, the check settles the half.
"""

from __future__ import annotations

from txsaga.core.batch_future import BatchFuture
from txsaga.core.identity import HalfId
from txsaga.core.kernel import Kernel
from txsaga.core.records import DecisionOutcome, End
from txsaga.errors import EndRefused, UnknownTransaction
from txsaga.messages.end_request import EndRequest


class EndRequestHandler:
    """Runs end requests, each after the hooks of its group."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._groups: dict[str, int] = {}  # a group's number never changes

    def submit(self, request: EndRequest) -> BatchFuture[DecisionOutcome] | None:
        """Check a request and queue its decision; None for UNKNOWN, which decides nothing."""
        self._kernel.hooks.tell(request)
        end = self._end(request)
        return None if end is None else self._kernel.decides.submit(end)

    def know(self, group: str, number: int) -> None:
        """Remember a group's number, so that queueing its ends needs no store query."""
        self._groups[group] = number

    def _end(self, request: EndRequest) -> End | None:
        half = self._locate(request)
        if request.state_table_offset != half.txid:
            raise EndRefused("SYSTEM_ERROR", "The transaction state table offset wrong")
        if request.commit_log_offset != half.txid:
            raise EndRefused("SYSTEM_ERROR", "The commit log offset wrong")
        decision = request.state.decision
        if decision is None:
            return None
        return End(half.txid, self._group(request.group), request.token, decision, request.from_check)

    def _group(self, name: str) -> int:
        if name not in self._groups:
            group = self._kernel.store.registry.find_group(name)
            if group is None:
                raise EndRefused("SYSTEM_ERROR", f"The producer group wrong: {name!r} is not registered")
            self.know(name, group.id)
        return self._groups[name]

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
