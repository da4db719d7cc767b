"""
The console inside Airflow: served by its API server, under its login, with its roles.

What Airflow keeps for itself of its login is used here alone.
"""

from __future__ import annotations

import hashlib
import hmac
from contextlib import suppress
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity
from airflow.api_fastapi.core_api.security import resolve_user_from_token
from airflow.configuration import conf
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse

from txsaga.airflow_host.instance import run_name
from txsaga.broker import Broker
from txsaga.console.access import Viewer
from txsaga.console.app import create_app
from txsaga.console.home import Home
from txsaga.console.people import Person, Rank
from txsaga.errors import ConfigError
from txsaga.provider.connections import connection_of, store_url
from txsaga.provider.options import CONN_ID
from txsaga.provider.reference import this_airflow
from txsaga.wiring.connecting import connect


class AirflowGuard:
    """Knows the people of this Airflow: who may start runs operates, and who may delete connections administers."""

    signs_in = False

    def __init__(self) -> None:
        self._secret = conf.get_mandatory_value("api", "secret_key").encode()

    async def person(self, request: Request) -> Person | None:
        """Return who sends a request."""
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        by_key = kind.lower() == "bearer"
        given = key if by_key else request.cookies.get(COOKIE_NAME_JWT_TOKEN)
        with suppress(HTTPException):
            user = await resolve_user_from_token(given)
            return Person(user.get_name(), _role_of(user), by_key=by_key)
        return None

    def token(self, request: Request, person: Person) -> str:
        """Return what a change must carry: the same in every process of the API server."""
        return hmac.new(self._secret, f"console {person.name}".encode(), hashlib.sha256).hexdigest()


def _role_of(user: object) -> Rank:
    manager, store = get_auth_manager(), ConnectionDetails(conn_id=CONN_ID.text())
    if manager.is_authorized_connection(method="DELETE", details=store, user=user):
        return Rank.ADMIN
    if manager.is_authorized_dag(method="POST", access_entity=DagAccessEntity.RUN, user=user):
        return Rank.OPERATOR
    return Rank.VIEWER


def console() -> FastAPI:
    """Return the console of the store that this Airflow's connection names."""

    def opens() -> Broker:
        try:
            url = store_url(connection_of(CONN_ID.text()))
        except ConfigError:  # there is none: the store of this process, as for its tasks
            url = None
        return connect(url, roles=False)

    app = create_app(Home(opens), AirflowGuard())
    app.add_api_route("/run", _run, include_in_schema=True)
    return app


def _run(request: Request, person: Viewer, dag: str, run: str) -> RedirectResponse:
    """Lead to the transaction of a run; to all of them if it has several."""
    name = run_name(dag, run, this_airflow())
    base = request.scope.get("root_path", "")
    return RedirectResponse(f"{base}/?{urlencode({'run': name, 'only': 1})}", 303)
