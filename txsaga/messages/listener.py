"""
`send_in_transaction`: exactly RocketMQ's half message.

    half stored (synchronous)  →  local work, only for SEND_OK  →  end, always attempted

Any exception of the first step is raised wrapped, and nothing runs. Any exception of local work is UNKNOWN
with its text as remark: the half stays pending and is checked later. The answer to the end is awaited for
`end_timeout` seconds; a failed or late end is a warning, and the check settles the message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import TimeoutError as WaitTimeout
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from txsaga import errors
from txsaga.core.arguments import check_function
from txsaga.core.batch_future import BatchFuture
from txsaga.core.decision import NOT_SAFE, Decision, LocalState, ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.kernel import Kernel
from txsaga.core.message import Message, as_message
from txsaga.core.records import DecisionOutcome, Doubt, End, Group, Half, Receipt
from txsaga.core.topic import SendKind
from txsaga.messages.end_request import EndRequest, SendResult

if TYPE_CHECKING:
    from txsaga.checkback.checkers import Question

logger = logging.getLogger("txsaga")

Executor = Callable[[Message, object], "LocalState | Decision | None"]
END_TIMEOUT = 3.0
MISTAKES = (
    errors.InvalidMessage,
    errors.UnknownTopic,
    errors.TopicTypeMismatch,
    errors.ReservedName,
    errors.BrokerClosed,
)
"""The caller's mistakes are raised unchanged; any other error becomes `SendFailed`."""


class TransactionListener(Protocol):
    """Executor and checker in one object."""

    def execute(self, message: Message, arg: object) -> LocalState | Decision | None:
        """Run the local work of a message."""

    def check(self, question: Question) -> LocalState | Decision | None:
        """Return the outcome of the local work."""


class EndRequestHandler:
    """Ends a half by request: finds it by its message id, runs the group's end hooks, then decides it.

    UNKNOWN changes nothing: the half stays pending and is checked later. A request that does not match its half gets
    SYSTEM_ERROR with the reason and changes nothing either. If a request never arrives, the check settles the half.
    """

    def __init__(self, kernel: Kernel, *groups: Group) -> None:
        self._kernel = kernel
        self._groups = {group.name: group.id for group in groups}  # a group's number never changes

    def submit(self, request: EndRequest) -> BatchFuture[DecisionOutcome] | None:
        """Check a request and queue its decision; None for UNKNOWN, which decides nothing."""
        self._kernel.hooks.tell(request)
        end = self._end(request)
        return None if end is None else self._kernel.decides.submit(end)

    def _end(self, request: EndRequest) -> End | None:
        txid = self._locate(request)
        if request.state_table_offset != txid:
            raise errors.EndRefused("SYSTEM_ERROR", "The transaction state table offset wrong")
        if request.commit_log_offset != txid:
            raise errors.EndRefused("SYSTEM_ERROR", "The commit log offset wrong")
        decision = request.state.decision
        if decision is None:
            return None
        return End(txid, self._group(request.group), request.token, decision, request.from_check)

    def _group(self, name: str) -> int:
        if name not in self._groups:
            group = self._kernel.store.registry.find_group(name)
            if group is None:
                raise errors.EndRefused("SYSTEM_ERROR", f"The producer group wrong: {name!r} is not registered")
            self._groups[name] = group.id
        return self._groups[name]

    def _locate(self, request: EndRequest) -> int:
        wrong, identity = "Find prepared transaction message failed", self._kernel.store.registry.identity
        try:
            half = HalfId.decode(request.message_id)
        except errors.UnknownTransaction as reason:
            raise errors.EndRefused("SYSTEM_ERROR", f"{wrong}: {reason}") from reason
        if half.store != identity:
            raise errors.EndRefused("SYSTEM_ERROR", f"{wrong}: it belongs to store {half.store}, this is {identity}")
        return half.txid


class _Worker:
    """Local work running in a thread; when that is gone, so is this."""


class Sending:
    """Sends half messages for one producer group."""

    def __init__(self, kernel: Kernel, group: Group, executor: Executor | None, end_timeout: float) -> None:
        self._kernel, self._group, self._endings = kernel, group, EndRequestHandler(kernel, group)
        self._executor, self._end_timeout = executor, end_timeout

    def send(self, message: Message, local: Executor | None, arg: object, immunity: int | None) -> SendResult:
        """Store the half, run local work, send the end."""
        executor = self._executor if local is None else local
        if executor is None:
            raise errors.ExecutorMissing(self._group.name)
        check_function(executor, "local", "give a function that takes message and arg")
        message, receipt, half = self._store(as_message(message, None, {}), immunity)
        qid = half.rows[0].qid
        message = message.stored_in(self._kernel.store.registry.identity.transaction(receipt.txid))
        request = self._request(message, receipt, qid)
        worker = _Worker()
        if half.immunity is None:  # an immunity itself sets the time of its check
            self._kernel.running.begin(worker, Doubt.of(receipt))
        try:
            state, remark = self._run(executor, message, arg, receipt.code, request.message_id)
        finally:
            self._kernel.running.end(worker)
        request = replace(request, state=state, remark=remark)
        self._end(request)
        return self._result(receipt, qid, request)

    def _store(self, message: Message, immunity: int | None) -> tuple[Message, Receipt, Half]:
        try:
            message, half = self._kernel.topics.half(self._group, message, immunity)
            return message, self._kernel.stores.call(half), half
        except MISTAKES:
            raise
        except Exception as reason:
            raise errors.SendFailed(reason) from reason

    def _run(
        self, executor: Executor, message: Message, arg: object, status: ReplyCode, message_id: str
    ) -> tuple[LocalState, str]:
        if status in NOT_SAFE:
            return LocalState.ROLLBACK, f"the half was stored with {status}"
        if status is not ReplyCode.SEND_OK:
            return LocalState.UNKNOWN, f"the half was answered with {status}"
        try:
            returned = executor(message, arg)
        except Exception as failure:  # the user's code: any exception is UNKNOWN
            logger.warning("local work of message %s raised: %s", message_id, LocalState.UNKNOWN, exc_info=True)
            return LocalState.UNKNOWN, f"{type(failure).__name__}: {failure}"
        try:
            state = LocalState.of(returned, "the local work")
        except ValueError as failure:
            logger.warning("message %s: %s", message_id, failure)
            return LocalState.UNKNOWN, str(failure)
        if state is not LocalState.COMMIT:
            logger.info("local work of message %s (key %s) for %s: %s", message_id, message.key, message.topic, state)
        return state, ""

    def _request(self, message: Message, receipt: Receipt, qid: int) -> EndRequest:
        identity = self._kernel.store.registry.identity
        return EndRequest(
            message_id=HalfId(identity, receipt.txid, 0, 0, qid, 0, 0).encode(),
            transaction_id=message.tx_id or identity.transaction(receipt.txid),
            broker=str(identity),
            group=self._group.name,
            state=LocalState.UNKNOWN,
            token=receipt.token,
            state_table_offset=receipt.txid,
            commit_log_offset=receipt.txid,
            topic=message.topic,
            message=message,
        )

    def _end(self, request: EndRequest) -> None:
        try:
            pending = self._endings.submit(request)
            if pending is not None:
                decision = pending.result(self._end_timeout).decision
                if decision is not request.state.decision:
                    logger.warning(
                        "%s: %s was requested, but the decision is %s", request.message_id, request.state, decision.name
                    )
        except WaitTimeout:
            logger.warning("message %s: the end request was sent, but its reply is late", request.message_id)
        except Exception as failure:  # noqa: BLE001  # the result is still returned; the check settles it
            logger.warning("message %s: the end request failed: %s; check-back settles it", request.message_id, failure)

    def _result(self, receipt: Receipt, qid: int, request: EndRequest) -> SendResult:
        topic = self._kernel.topics.open(request.topic, SendKind.HALF)
        return SendResult(
            status=receipt.code,
            queue=topic.qids.index(qid),
            message_id=request.message_id,
            queue_offset=receipt.txid,
            transaction_id=request.transaction_id,
            local_state=request.state,
            remark=request.remark,
        )
