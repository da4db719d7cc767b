"""
The web application of the open catalog. Every refusal has the form and the type of the REST specification.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response

from txsaga.catalog.access import LIFETIME, Client, Clients, Doorkeeper, address_of, credentials_of
from txsaga.catalog.moments import CUT, WORKSPACE
from txsaga.catalog.open_catalog import OpenCatalog
from txsaga.catalog.refusals import CatalogRefusal, bad, refusal
from txsaga.catalog.routes import Asking, router
from txsaga.errors import TxSagaError
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed

logger = logging.getLogger("txsaga")
KEY_LIFETIME = "PT30M"
"""How long a client may repeat a request with its key; a decision is kept longer."""
LARGEST = 8 * 1024 * 1024  # bytes of a request
OPEN = ("/v1/oauth/tokens",)
LARGEST_OPEN = 64 * 1024  # bytes of a request of anybody
Scope = MutableMapping[str, Any]


def create_app(opened: Callable[[], OpenCatalog], doorkeeper: Doorkeeper) -> FastAPI:
    """Return the application of a catalog; clients get tokens here if the doorkeeper has a list of them."""
    app = FastAPI(title="txsaga catalog", version="1", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.opened, app.state.doorkeeper = opened, doorkeeper
    app.add_api_route("/v1/config", config, methods=["GET"])
    if isinstance(doorkeeper, Clients):
        app.add_api_route("/v1/oauth/tokens", tokens, methods=["POST"])
    for prefix in ("/v1", "/v1/{prefix}"):
        app.include_router(router, prefix=prefix)
    app.add_middleware(Entrance)
    for kind in (CatalogRefusal, TxSagaError, BadUpdate, RequirementFailed, RequestValidationError, Exception):
        app.add_exception_handler(kind, _refused)
    for status in (400, 404, 405):
        app.add_exception_handler(status, _not_served)
    return app


def config(request: Request, client: Asking, warehouse: str = "") -> dict[str, object]:
    """Return what a client must know first."""
    served = sorted(
        {
            f"{method} {path}".replace("views/{table}", "views/{view}")
            for path, methods in _paths(request.app)
            for method in methods
        }
    )
    at = {"prefix": warehouse} if warehouse.startswith((f"{CUT}-", f"{WORKSPACE}-")) else {}
    if at:
        request.app.state.opened().at(warehouse)
    return {"defaults": {}, "overrides": at, "endpoints": served, "idempotency-key-lifetime": KEY_LIFETIME}


async def tokens(request: Request) -> Response:
    """Return an access token for credentials, or for a token that is still good."""
    clients: Clients = request.app.state.doorkeeper
    form = dict(parse_qsl((await request.body()).decode(errors="replace")))
    try:
        match form.get("grant_type"):
            case "client_credentials":
                given = credentials_of(request.headers.get("authorization", ""))
                name, secret = given or (form.get("client_id", ""), form.get("client_secret", ""))
                token = clients.token(name, secret, address_of(request))
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                token = clients.renewed(form.get("subject_token", ""), address_of(request))
            case other:
                return JSONResponse({"error": "unsupported_grant_type", "error_description": f"{other}"}, 400)
    except CatalogRefusal as refused:
        said = {"error": "invalid_client", "error_description": str(refused)}
        return JSONResponse(said, refused.status, headers=refused.headers)
    issued = "urn:ietf:params:oauth:token-type:access_token"
    return JSONResponse(
        {"access_token": token, "token_type": "bearer", "expires_in": LIFETIME, "issued_token_type": issued},
        headers={"cache-control": "no-store"},
    )


class Entrance:
    """Lets requests of known clients in, logs what they change, and routes by the path as it was sent.

    A request of a stranger, or one that is too large, is refused before it is read: it would be kept in memory. A name
    in a path may hold an encoded slash.
    """

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        scope["path"] = scope.get("raw_path", b"").decode("latin-1") or scope["path"]
        request = Request(scope)
        try:
            client = request.state.client = await _let_in(request)
        except CatalogRefusal as refused:
            return await _answer(refused)(scope, receive, send)

        async def logged(message: Scope) -> None:
            if client is not None and message["type"] == "http.response.start":
                logger.info("%s@catalog: %s %s: %d", client.name, request.method, request.url.path, message["status"])
            await send(message)

        await self._app(scope, receive, send if request.method in ("GET", "HEAD") else logged)


def _paths(app: FastAPI) -> list[tuple[str, set[str]]]:
    routes = ((getattr(each, "path", ""), getattr(each, "methods", None) or set()) for each in app.routes)
    return [(path, methods) for path, methods in routes if path.startswith("/v1/{prefix}/")]


async def _let_in(request: Request) -> Client | None:
    """Return who sends a request; whoever asks for a token is not known yet."""
    is_open = request.url.path.endswith(OPEN)
    if "transfer-encoding" in request.headers:
        raise CatalogRefusal(411, "BadRequestException", "the request does not say its length")
    most = LARGEST_OPEN if is_open else LARGEST
    if int(request.headers.get("content-length", 0)) > most:
        raise CatalogRefusal(413, "BadRequestException", f"the request has more than {most} bytes")
    return None if is_open else await request.app.state.doorkeeper.client_of(request)


async def _refused(request: Request, error: Exception) -> Response:
    match error:
        case RequestValidationError():
            first = error.errors()[0]
            if first["type"] == "json_invalid":
                return _answer(bad("the body can't be read as JSON"))
            return _answer(bad(f"{'.'.join(str(each) for each in first['loc'][1:]) or 'body'}: {first['msg']}"))
    found = refusal(error)
    if found.status == 500:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _answer(found)


async def _not_served(request: Request, error: Exception) -> Response:
    status, line = getattr(error, "status_code", 500), getattr(error, "detail", error)
    kind = "BadRequestException" if status == 400 else "UnsupportedOperationException"
    return _answer(CatalogRefusal(status, kind, f"{request.method} {request.url.path}: {line}"))


def _answer(refused: CatalogRefusal) -> Response:
    said = {"message": str(refused), "type": refused.kind, "code": refused.status}
    return JSONResponse({"error": said}, refused.status, headers=refused.headers)
