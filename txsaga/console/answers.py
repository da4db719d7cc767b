"""
Answers: data as JSON, with tags by which a caller that has an answer is not sent it again.
"""

from __future__ import annotations

import hashlib
import json

from fastapi import Request
from fastapi.responses import Response

from txsaga.broker import Broker
from txsaga.console.home import Home
from txsaga.core.stored_json import plain


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
