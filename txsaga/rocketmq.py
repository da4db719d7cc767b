"""
RocketMQ's transactional producer: a half message, local work and its end, then checks while there is no decision.

    half stored (synchronous)  →  local work, only for SEND_OK  →  end, always attempted

Any exception of the first step is raised wrapped, and nothing runs. Any exception of local work is UNKNOWN
with its text as remark: the half stays pending and is checked later. The answer to the end is awaited for
`end_timeout` seconds; a failed or late end is a warning, and the check settles the message. End hooks see each of
these ends, and each answer of a check, before it is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as WaitTimeout
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Protocol

from txsaga import errors
from txsaga.broker import Broker
from txsaga.checkback.checkers import Checker, Question
from txsaga.core.arguments import check_function, check_kind, check_seconds, list_of
from txsaga.core.batch_future import BatchFuture
from txsaga.core.decision import NOT_SAFE, Decision, LocalState, ReplyCode
from txsaga.core.identity import HalfId
from txsaga.core.kernel import Kernel
from txsaga.core.message import Message, as_message
from txsaga.core.records import DecisionOutcome, Doubt, End, Group, Half, Receipt
from txsaga.core.topic import SendKind
from txsaga.messages.producer import Producer

__all__ = ["EndRequest", "SendResult", "TransactionListener", "TransactionMQProducer"]

logger = logging.getLogger("txsaga")

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
    """Local work and its checker in one object."""

    def execute_local_transaction(self, message: Message, arg: object) -> LocalState | Decision | None:
        """Run the local work of a message."""

    def check_local_transaction(self, question: Question) -> LocalState | Decision | None:
        """Return the outcome of the local work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """The result of a transactional send: the first six fields are always set."""

    status: ReplyCode
    queue: int
    message_id: str
    queue_offset: int
    transaction_id: str
    local_state: LocalState
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """The second-phase request for one half."""

    message_id: str  # names the store and the half; it can be decoded
    transaction_id: str
    broker: str
    group: str
    state: LocalState
    token: bytes = field(repr=False)
    state_table_offset: int
    commit_log_offset: int
    from_check: bool = False
    remark: str = ""
    topic: str = ""
    message: Message | None = None  # what was sent; None if a check ends it


Executor = Callable[[Message, object], LocalState | Decision | None]
EndHook = Callable[[EndRequest], None]


class EndRequestHandler:
    """Ends a half by request: finds it by its message id, then decides it.

    UNKNOWN changes nothing: the half stays pending and is checked later. A request that does not match its half gets
    SYSTEM_ERROR with the reason and changes nothing either. If a request never arrives, the check settles the half.
    """

    def __init__(self, kernel: Kernel, group: Group | None = None) -> None:
        self._kernel, self._own = kernel, group

    def submit(self, request: EndRequest) -> BatchFuture[DecisionOutcome] | None:
        """Check a request and queue its decision; None for UNKNOWN, which decides nothing."""
        txid = self._locate(request)
        if request.state_table_offset != txid:
            raise errors.EndRefused("SYSTEM_ERROR", "The transaction state table offset wrong")
        if request.commit_log_offset != txid:
            raise errors.EndRefused("SYSTEM_ERROR", "The commit log offset wrong")
        decision = request.state.decision
        if decision is None:
            return None
        own, registry = self._own, self._kernel.store.registry
        group = own if own and own.name == request.group else registry.find_group(request.group)
        if group is None:
            raise errors.EndRefused("SYSTEM_ERROR", f"The producer group wrong: {request.group!r} is not registered")
        end = End(txid, group.id, request.token, decision, request.from_check)
        return self._kernel.decides.submit(end)

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


class TransactionMQProducer(Producer):
    """A producer that also sends half messages with local work; its group takes no plain producers."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        listener: TransactionListener | None = None,
        *,
        checker: Checker | None = None,
        end_hooks: Iterable[EndHook] = (),
        end_timeout: float = END_TIMEOUT,
    ) -> None:
        check_kind(broker, Broker, "broker", "give the broker that txsaga.connect() returns")
        self._executor: Executor | None = None
        if listener is not None:
            for name in ("execute_local_transaction", "check_local_transaction"):
                check_function(getattr(listener, name, None), f"listener.{name}", "give a TransactionListener")
            self._executor = listener.execute_local_transaction
            checker = listener.check_local_transaction if checker is None else checker
        if checker is None:
            raise errors.ExecutorMissing(group)
        self._hooks = list_of(end_hooks, "end_hooks", "give a list of functions")
        for hook in self._hooks:
            check_function(hook, "an end hook", "give a function of one argument")
        check_seconds(end_timeout, "end_timeout")
        check_function(checker, "checker", "give a function that answers for a transaction")
        self._end_timeout, checker = end_timeout, self._announced(checker)
        super().__init__(broker.kernel, group, checker, transactional=True)
        self._endings = EndRequestHandler(broker.kernel, self.group)
        broker.answer_for(group, checker)

    def send_message_in_transaction(
        self, message: Message, arg: object = None, *, executor: Executor | None = None, immunity: int | None = None
    ) -> SendResult:
        """Store a half message, run local work, send the end; an executor replaces that of the listener."""
        executor = self._executor if executor is None else executor
        if executor is None:
            raise errors.ExecutorMissing(self.group.name)
        check_function(executor, "executor", "give a function that takes message and arg")
        kernel = self._kernel  # the local work may close the broker
        message, receipt, half = self._store(as_message(message, None, {}), immunity)
        qid, identity = half.rows[0].qid, kernel.store.registry.identity
        message_id = HalfId(identity, receipt.txid, 0, 0, qid, 0, 0).encode()
        request = self._request(receipt, message_id, message.tx_id or identity.transaction(receipt.txid))
        queue = kernel.topics.open(message.topic, SendKind.HALF).qids.index(qid)
        worker = _Worker()
        if half.immunity is None:  # an immunity itself sets the time of its check
            kernel.running.begin(worker, Doubt.of(receipt))
        try:
            state, remark = self._run(executor, message, arg, receipt.code, message_id)
        finally:
            kernel.running.end(worker)
        self._send_end(replace(request, state=state, remark=remark, topic=message.topic, message=message))
        return SendResult(
            status=receipt.code,
            queue=queue,
            message_id=message_id,
            queue_offset=receipt.txid,
            transaction_id=request.transaction_id,
            local_state=state,
            remark=remark,
        )

    def _store(self, message: Message, immunity: int | None) -> tuple[Message, Receipt, Half]:
        try:
            message, half = self._kernel.topics.half(self.group, message, immunity)
            receipt = self._kernel.stores.call(half)
            return message.stored_in(self._kernel.store.registry.identity.transaction(receipt.txid)), receipt, half
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

    def _request(self, stored: Receipt | Doubt, message_id: str, transaction_id: str) -> EndRequest:
        return EndRequest(
            message_id=message_id,
            transaction_id=transaction_id,
            broker=str(self._kernel.store.registry.identity),
            group=self.group.name,
            state=LocalState.UNKNOWN,
            token=stored.token,
            state_table_offset=stored.txid,
            commit_log_offset=stored.txid,
        )

    def _send_end(self, request: EndRequest) -> None:
        self._tell_hooks(request)
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

    def _tell_hooks(self, request: EndRequest) -> None:
        """Run the end hooks; they can't make an end fail."""
        for hook in self._hooks:
            try:
                hook(request)
            except Exception:
                logger.exception("an end hook failed for transaction %s", request.transaction_id)

    def _announced(self, checker: Checker) -> Checker:
        """Return a checker that shows each answer to the end hooks first: it is an end, too."""
        if not self._hooks:
            return checker

        @wraps(checker)
        def check(question: Question) -> LocalState | Decision | None:
            case = question.case
            topic = case.halves[0].real_topic if case.halves else ""
            request = replace(self._request(case.doubt, case.message_id, case.id), from_check=True, topic=topic)
            try:
                answer = checker(question)
            except Exception as failure:
                self._tell_hooks(replace(request, remark=f"{type(failure).__name__}: {failure}"))
                raise
            try:
                request = replace(request, state=LocalState.of(answer, "the checker"))
            except ValueError as wrong:
                request = replace(request, remark=str(wrong))
            self._tell_hooks(request)
            return answer

        return check
