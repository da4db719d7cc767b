"""
Answers: data as JSON, with tags by which a caller that has an answer is not sent it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from txsaga.broker import Broker
from txsaga.console.home import Home
from txsaga.core.stored_json import plain

Described = dict[int | str, dict[str, Any]]
"""How the description of `/api/v1` says what a request returns."""


def described(what: str, schema: Mapping[str, Any], kind: str = "application/json") -> Described:
    """Describe an answer."""
    return {200: {"description": what, "content": {kind: {"schema": schema}}}}


_THING = {"type": "object", "additionalProperties": True}
_NEXT = {"type": ["integer", "string", "null"], "description": "where the next page begins; null on the last one"}
OBJECT = described("An object.", _THING)
LIST = described("A list.", {"type": "array", "items": _THING})
PAGE = described(
    "A page.",
    {
        "type": "object",
        "properties": {"items": {"type": "array", "items": _THING}, "next": _NEXT},
        "required": ["items"],
    },
)
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def refused(*statuses: int | str) -> Described:
    """Describe refusals."""
    found = {"description": "Refused: one line.", "content": {"application/json": {"schema": _ERROR}}}
    return dict.fromkeys(statuses, found)


def broker_of(request: Request) -> Broker:
    """Return the broker of the console."""
    return home_of(request).broker


def home_of(request: Request) -> Home:
    """Return the store of the console, and what it asks elsewhere."""
    home: Home = request.app.state.home
    return home


def path_of(request: Request) -> str:
    """Return the path of a request without the prefix that a proxy, or Airflow, puts before it."""
    return request.url.path.removeprefix(request.scope.get("root_path", ""))


def answer(request: Request, found: object) -> Response:
    """Return data as JSON, with its tag."""
    return tagged(request, Response(json.dumps(found, default=plain), media_type="application/json"))


def tagged(request: Request, response: Response) -> Response:
    """Return an answer with its tag, or nothing if the caller has it."""
    tag = f'"{hashlib.sha256(bytes(response.body)).hexdigest()[:24]}"'
    if request.headers.get("if-none-match") == tag:
        response = Response(status_code=304)
    response.headers["etag"], response.headers["cache-control"] = tag, "no-cache"
    return response
