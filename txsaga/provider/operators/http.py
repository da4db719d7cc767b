"""
A step that calls a service at least once, with the step's id as `Idempotency-Key`, so that the service can deduplicate.

URL, headers and body are stored with the step so that an engine can continue: put no secrets in them. The call is
undone by another call, `compensate=Http(…)`, with the same input. If the process dies, the retry calls again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from airflow.sdk import Context

from txsaga.errors import ConfigError
from txsaga.flows.declaration import DeclaredStep
from txsaga.provider.operators.flow_task import JoinedFlow
from txsaga.provider.operators.step import StepOperator
from txsaga.provider.results import as_plain


class HttpStep(StepOperator):
    """Call a service; its XCom is the answer."""

    template_fields: Collection[str] = ("flow", "url", "input", "headers")

    def __init__(
        self,
        *,
        url: str,
        input: Mapping[str, object] | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(input=input, **options)
        if self.on is not None:
            raise ConfigError(f"step {self.task_id!r} calls a service and works in no resource; leave on= out")
        self.url, self.method, self.headers, self.timeout = url, method, headers, timeout

    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Call the service, unless an earlier attempt got its answer."""
        from txsaga.flows.saga_values import Http

        answer: object = flow.flow.call(
            self.step_name(context),
            Http(self.url, method=self.method, headers=dict(self.headers or {})),
            input=dict(self.input or {}),
            compensate=self.compensate,
            timeout=self.timeout,
        )
        if self.do_xcom_push:
            as_plain(answer, self.max_result)
        return answer

    def do(self, context: Context, flow: JoinedFlow, handle: Any) -> object:
        """Raise: a call is not held work."""
        raise NotImplementedError

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan."""
        return DeclaredStep(name=self.task_id)
