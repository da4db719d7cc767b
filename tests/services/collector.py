"""A collector of spans on a free port, as OpenTelemetry's exporters reach one: OTLP over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Seen(NamedTuple):
    """A span that came in."""

    name: str
    trace: bytes
    about: Mapping[str, object]


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.spans: list[Seen] = []

    @property
    def env(self) -> Mapping[str, str]:
        """Return what sends an Airflow's spans here."""
        return {
            "AIRFLOW__TRACES__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{self.server_port}/v1/traces",
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        }

    def of(self, txid: int) -> Sequence[Seen]:
        """Return the spans of a transaction."""
        return [span for span in self.spans if span.about.get("txsaga.txid") == txid]

    def take(self, body: bytes) -> None:
        """Read an export."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                about = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
                self.spans.append(Seen(span.name, span.trace_id, about))


class _Asked(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def collector() -> Iterator[Collector]:
    """Give a collector."""
    with Collector() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
