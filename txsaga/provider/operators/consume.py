"""
Take messages for a flow: they are consumed exactly if it commits; if it rolls back they are redelivered and counted.

Messages are kept before the step is done, and belong to the flow by the same commit that marks the step done. A process
that dies earlier has taken none: its messages are redelivered after their timeout, and a retry takes what is there.

The result is stored in Airflow's database, so `max_bytes` limits it. Messages beyond the limit are given back as if
never taken; a single message above the limit is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from txsaga.errors import ConfigError, StepDone
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import StepOperator
from txsaga.provider.reference import group_of
from txsaga.provider.results import find_result, keep_result
from txsaga.provider.tracing import counted

if TYPE_CHECKING:
    from txsaga.consume.consumer import Consumer
    from txsaga.consume.delivery import Delivery


AT_ONCE = 60
"""Messages per claim."""
MAX_BYTES = 1024 * 1024


class ConsumeStep(StepOperator):
    """Take up to `batch` messages of a group; the XCom is a list of them. Without messages the task is skipped.

    Each is a dict of `id`, `topic`, `key`, `tag`, `headers`, `attempts` and `body`. The body is text or, if it is not
    UTF-8, base64 with an additional `encoding: "base64"`.
    """

    template_fields: Collection[str] = ("flow",)
    never_mapped: ClassVar[str] = (
        "takes messages and can't be mapped: where one of several finds none, what lies behind all of them is skipped, "
        "and what the others took would be done without it; raise batch=, or let the flow have several runs at once"
    )

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        consumer_group: str | None = None,
        batch: int = 100,
        max_bytes: int = MAX_BYTES,
        wait: float = 0.0,
        skip_when_empty: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topics = [topics] if isinstance(topics, str) else list(topics)
        if batch < 1 or max_bytes < 1:
            raise ConfigError(
                f"step {self.task_id!r} takes up to batch={batch} messages of max_bytes={max_bytes}: give 1 or more"
            )
        self.consumer_group, self.batch, self.max_bytes, self.wait = consumer_group, batch, max_bytes, wait
        self.skip_when_empty = skip_when_empty

    def not_amended(self) -> str:
        """Return why a flow with this step can't be amended."""
        return (
            f"step {self.task_id!r} takes messages, and those that a commit took are done: an amendment would take "
            "others; leave allow_amend= out"
        )

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Take the messages, unless an earlier attempt did."""
        known: object
        try:
            with flow.step(self.step_name(context)):
                known = taken = self._taken(context, flow)
            counted("messages.taken", len(taken), dag_id=self.dag_id)
        except StepDone as done:
            self.log.info("%s", done)
            known = find_result(context, flow.txid)
        if not known and self.skip_when_empty:
            raise AirflowSkipException("there is no message")
        return known

    def _taken(self, context: Context, flow: JoinedFlow) -> list[dict[str, object]]:
        group = self.consumer_group or group_of(context["ti"].dag_id)
        received = self._received(flow.broker.consumer(group, self.topics))
        told = [each for _, each in received]
        keep_result(context, flow.txid, told)
        for each, _ in received:
            flow.flow.consume(each)
        return told

    def _received(self, consumer: Consumer) -> list[tuple[Delivery, dict[str, object]]]:
        """Take messages until the batch is full, no message is left, or `max_bytes` is reached."""
        found: list[tuple[Delivery, dict[str, object]]] = []
        room, wait = self.max_bytes, self.wait
        while len(found) < self.batch:
            taken = consumer.receive(min(AT_ONCE, self.batch - len(found)), wait=wait)
            wait = 0.0
            for at, each in enumerate(taken):
                plain = as_told(each)
                room -= len(json.dumps(plain))
                if room < 0:
                    for left in taken[at:]:
                        left.give_back()
                    self._require_some(found, each)
                    return found
                found.append((each, plain))
            if not taken:
                break
        return found

    def _require_some(self, found: Sequence[object], message: Delivery) -> None:
        if not found:
            raise AirflowFailException(
                f"message {message.id} has {len(message.body)} bytes, and step {self.task_id!r} hands on no more than "
                f"{self.max_bytes} in all: give it more by max_bytes=, or take it in a Python step by flow.consume(…)"
            )

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Raise: `work` takes the messages instead."""
        raise NotImplementedError


def as_told(message: Delivery) -> dict[str, object]:
    """Return a message as the plain values that later tasks get."""
    told: dict[str, object] = {
        "id": message.id,
        "topic": message.topic,
        "key": message.key,
        "tag": message.tag,
        "headers": dict(message.headers),
        "attempts": message.attempts,
    }
    try:
        return told | {"body": bytes(message.body).decode()}
    except UnicodeDecodeError:
        return told | {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}
