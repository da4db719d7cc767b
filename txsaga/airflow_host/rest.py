"""
What Airflow answers by REST: its health, and the states of its runs.

A token is obtained with the login in the URL and kept until it is refused. Nothing here waits for long: the caller has
other things to do, and a missing answer is an answer too.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit, urlunsplit
from urllib.request import ProxyHandler, Request, build_opener

from txsaga.config import AIRFLOW_URL
from txsaga.errors import HostFailed

PATIENCE = 5.0
REFUSED = (401, 403)
"""A token may have expired."""
NOT_FOUND = 404
GONE = "The DagRun with dag_id: `{dag}` and run_id: `{run}` was not found"
"""Airflow's answer where a run, or its DAG, does not exist."""

_NOTHING = object()
"""Airflow answered that there is no such thing."""


class Airflow:
    """The REST interface of one Airflow."""

    def __init__(self, url: str, *, patience: float = PATIENCE) -> None:
        parts = urlsplit(AIRFLOW_URL.read(AIRFLOW_URL.name, url))
        assert parts.hostname is not None  # an address without a host was refused
        self._login = {"username": parts.username or "", "password": parts.password or ""}
        place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.address = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._patience, self._token = patience, ""
        here = parts.hostname in ("localhost", "127.0.0.1", "::1")
        self._opener = build_opener(ProxyHandler({})) if here else build_opener()

    def health(self) -> dict[str, Any]:
        """Return the reported health of each part."""
        found = self._open("GET", "/api/v2/monitor/health")
        return found if isinstance(found, dict) else {}

    def warm_up(self) -> None:
        """Have the interface for tasks built now; otherwise the first task waits for it."""
        self._open("GET", "/execution/health")

    def ask(self, method: str, path: str, body: object = None) -> Any:  # JSON
        """Call the interface with the login; return None where there is no such thing."""
        found = self._asked(method, path, body, gone=None)
        return None if found is _NOTHING else found

    def _asked(self, method: str, path: str, body: object, *, gone: str | None) -> Any:  # JSON
        for known in (bool(self._token), False):
            if not known:
                self._log_in()
            try:
                return self._open(method, f"/api/v2/{path}", body)
            except HTTPError as answer:
                if answer.code == NOT_FOUND and (gone is None or _detail(answer) == gone):
                    return _NOTHING
                if answer.code not in REFUSED or not known:
                    told = f"Airflow at {self.address} answered {answer.code} to {path}: see its log"
                    raise HostFailed(told) from None
        return None

    def run(self, dag: str, run: str) -> dict[str, Any] | None:
        """Return a run; None only if Airflow itself answers that there is none, not on a proxy's 404."""
        path = f"dags/{quote(dag, safe='')}/dagRuns/{quote(run, safe='')}"
        found = self._asked("GET", path, None, gone=GONE.format(dag=dag, run=run))
        if found is _NOTHING:
            return None
        if not isinstance(found, dict):
            raise HostFailed(f"the server at {self.address} does not answer like Airflow: it returned no run")
        return found

    def _log_in(self) -> None:
        try:
            answer = self._open("POST", "/auth/token", self._login)
            self._token = str(answer["access_token"])
        except HTTPError as refusal:
            raise HostFailed(
                f"Airflow at {self.address} refuses the login of TXSAGA_AIRFLOW_URL ({refusal.code}); "
                "write http://user:password@host:port"
            ) from None
        except (KeyError, TypeError) as strange:
            raise HostFailed(f"the server at {self.address} is not Airflow: it returned no token") from strange

    def _open(self, method: str, path: str, body: object = None) -> Any:  # JSON
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            request = Request(self.address + path, data, headers, method=method)
            with self._opener.open(request, timeout=self._patience) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError:
            raise
        except (URLError, OSError, ValueError) as silent:
            raise HostFailed(
                f"Airflow at {self.address} does not answer: {getattr(silent, 'reason', silent)}"
            ) from silent


def _detail(answer: HTTPError) -> object:
    """Return the detail of an answer; None if the answer is not Airflow's."""
    try:
        told = json.loads(answer.read() or b"null")
    except (OSError, ValueError):
        return None
    return told.get("detail") if isinstance(told, dict) else None
