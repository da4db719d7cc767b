"""
A task of a flow: it finds the flow of its run, joins it, works, and leaves. The base of all flow operators.

    class MyTask(FlowOperator):
        def work(self, context: Context, flow: JoinedFlow) -> object: …

`flow` is the id of the task that began the flow (default "begin"), or that task's output. If the process dies during
the task, the flow stays open: a retry joins it again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context

from txsaga.errors import ConfigError
from txsaga.flows.declaration import ResourceMode
from txsaga.flows.step_records import HOME
from txsaga.provider.ambient import AMBIENT
from txsaga.provider.reference import BEGIN, FlowReference, read_reference
from txsaga.provider.refusing import refused_for_good
from txsaga.provider.resources import StoredConnection, stored_name
from txsaga.provider.tracing import named, traced

if TYPE_CHECKING:
    from jinja2 import Environment

    from txsaga.broker import Broker
    from txsaga.flows.declaration import DeclaredStep
    from txsaga.flows.flow import Flow
    from txsaga.flows.flow_lane import FlowLane


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedFlow:
    """A flow that a task has joined."""

    reference: FlowReference
    broker: Broker
    flow: Flow

    @property
    def txid(self) -> int:
        """The number of the flow's transaction."""
        return self.reference["txid"]

    def resource(self, name: str) -> StoredConnection:
        """Return the declaration of a resource."""
        if name not in self.reference["resources"]:
            known = ", ".join(sorted(self.reference["resources"])) or "none"
            raise ConfigError(f"{name!r} is no resource of this flow (it has {known}); name it where the flow begins")
        return self.reference["resources"][name]

    def lane(self, name: str) -> FlowLane:
        """Return the lane of a resource, to settle it."""
        return self.flow.lane(stored_name(self.resource(name)["connection"]))

    def stored(self, name: str) -> str:
        """Return the name of a resource in the store."""
        return HOME if name == HOME else stored_name(self.resource(name)["connection"])

    def step(self, name: str, *, on: str | None = None, **said: Any) -> AbstractContextManager[Any]:
        """Open a step on a resource: in main or in its lane, as the resource was declared."""
        if on is None or on == HOME:
            return self.flow.step(name, on=on, **said)
        if self.resource(on)["mode"] == ResourceMode.LANE:
            return self.flow.step(name, lane=self.stored(on), **said)
        return self.flow.step(name, on=self.stored(on), **said)

    def settles_itself(self, on: str | None, *, commit: bool = False) -> bool:
        """Return whether work on a resource is settled when its step ends, regardless of the flow's outcome."""
        if on is None or on == HOME:
            return False
        mode = self.resource(on)["mode"]
        return commit or mode == ResourceMode.LOCAL or (mode == ResourceMode.MAIN and not self.reference["coordinated"])


class FlowOperator(BaseOperator):
    """A task that works in the flow of its run."""

    template_fields: Collection[str] = ("flow",)
    ui_color = "#e8f1ea"

    def __init__(self, *, flow: str | Mapping[str, object] | Any = BEGIN, **options: Any) -> None:
        super().__init__(**options)
        self.flow = flow

    def render_template_fields(self, context: Context, jinja_env: Environment | None = None) -> None:
        """Render them, and meanwhile open the store: Airflow takes time to store the fields and to find the flow."""
        begin = None if self.dag is None else self.dag.task_dict.get(str(self.flow))
        if (store := getattr(begin, "store", None)) is not None:
            AMBIENT.open_ahead(store)
        super().render_template_fields(context, jinja_env)

    def execute(self, context: Context) -> object:
        """Join the flow and work in it."""
        with refused_for_good(), traced("task", kind=type(self).__name__) as span:
            flow = self.joined(context)
            named(span, txid=flow.txid, id=flow.reference["id"], epoch=flow.reference["epoch"])
            return self.work(context, flow)

    @abstractmethod
    def work(self, context: Context, flow: JoinedFlow) -> object:
        """Do the task's work; the return value is its XCom."""

    def declared(self) -> DeclaredStep | None:
        """Return this task as a step of the flow's plan; None if it does no planned work."""
        return None

    def reference(self, context: Context) -> FlowReference:
        """Return the reference that begin handed on."""
        if isinstance(self.flow, str):
            return read_reference(context["ti"].xcom_pull(task_ids=self.flow), self.flow)
        return read_reference(self.flow, "of flow=")

    def joined(self, context: Context) -> JoinedFlow:
        """Join the flow; raise if it is already decided."""
        reference = self.reference(context)
        broker = opened(reference)
        return JoinedFlow(reference=reference, broker=broker, flow=broker.flow(reference["txid"]))


def opened(reference: FlowReference) -> Broker:
    """Open the store of a flow and the databases it may work in."""
    return AMBIENT.broker(reference["store"], [each["connection"] for each in reference["resources"].values()])
