"""What Airflow's metrics and traces show of flows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import txsaga
from tests.provider.house import House
from tests.services.databases import fresh_name
from txsaga.provider import ConsumeStep, message_flow, step

BACKEND = "airflow.sdk._shared.observability.metrics.stats._backend"


class Writer:
    """Takes what Airflow would send."""

    def __init__(self) -> None:
        self.found: dict[str, list[object]] = {}

    def incr(self, stat: str, count: int = 1, **said: object) -> None:
        """Take a count."""
        self.found.setdefault(stat, []).append(count)

    def timing(self, stat: str, dt: object, **said: object) -> None:
        """Take a time."""
        self.found.setdefault(stat, []).append(dt)

    def decr(self, *given: object, **said: object) -> None:
        """Take nothing."""

    gauge = decr

    def timer(self, *given: object, **said: object) -> object:
        """Time nothing."""
        from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger

        return NoStatsLogger.timer()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """Give what whoever writes metrics gets."""
    writer = Writer()
    monkeypatch.setattr(BACKEND, writer)
    return writer


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Give the spans of this process."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()


def ours(spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """Return our spans, in the order in which they began."""
    found = [each for each in spans.get_finished_spans() if each.name.startswith("txsaga.")]
    return sorted(found, key=lambda each: each.start_time or 0)


def test_every_task_of_a_flow_has_a_span_that_names_the_transaction(house: House, spans: InMemorySpanExporter) -> None:
    @message_flow(schedule=None)
    def traced() -> None:
        @step.python()
        def works() -> int:
            return 1

        works()

    run = house.run(traced())
    assert run.state == "success", run.tasks
    found = ours(spans)
    assert [each.name for each in found] == ["txsaga.begin", "txsaga.task", "txsaga.decide"]
    assert {(each.attributes or {})["txsaga.txid"] for each in found} == {run.xcom("begin")["txid"]}
    assert (found[1].attributes or {})["txsaga.kind"] == "TxStepOperator"
    assert (found[2].attributes or {})["txsaga.commit"] is True


def test_what_is_taken_and_how_long_a_decision_took_is_told(house: House, written: Writer) -> None:
    topic = house.topic(fresh_name("taken"), "normal")
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        for body in (b"1", b"2", b"3"):
            broker.producer("sender").send(topic, body)
    house.seen(topic)

    @message_flow(schedule=None)
    def measured() -> None:
        ConsumeStep(task_id="take", topics=topic, consumer_group="takers")

    run = house.run(measured())
    assert run.state == "success", run.tasks
    assert written.found["txsaga.messages.taken"] == [3]
    assert len(written.found["txsaga.flow.deciding"]) == 1
