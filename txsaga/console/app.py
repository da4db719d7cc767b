"""
The web application: pages for people, and `/api/v1` for programs, with one guard before both.

Every route names the role that it needs; a route without one is refused to everybody. Errors of the product become one
clear line with the status that fits. No page runs a script of another origin, or any that is written in the page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from txsaga import errors
from txsaga.console import api, messages, pages
from txsaga.console.access import Guard
from txsaga.console.answers import path_of
from txsaga.console.home import Home
from txsaga.console.lag import LagHistory
from txsaga.console.live import News
from txsaga.core import exits

STATUS = {exits.MISTAKE: 400, exits.NOT_FOUND: 404, exits.CONFLICT: 409, exits.UNAVAILABLE: 503, exits.REFUSED: 500}
"""The HTTP status for each exit code of the command line."""
OF_MESSAGES: Mapping[type[errors.TxSagaError], int] = {
    errors.TransactionsRejected: 403,
    errors.UnknownTopic: 404,
    errors.InvalidMessage: 422,
    errors.TopicTypeMismatch: 422,
}
"""The HTTP status of errors with one of their own where messages are sent."""
LARGEST = 16 * 1024 * 1024  # bytes of a request
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
STATIC = Path(__file__).parent / "static"


def create_app(home: Home, guard: Guard) -> FastAPI:
    """Return the console of a store."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        lag.start()
        yield
        lag.stop()
        await app.state.receiving.close()
        home.close()

    lag = LagHistory(home)

    app = FastAPI(
        title="txsaga console", version="1", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.state.home, app.state.guard, app.state.news, app.state.lag = home, guard, News(home), lag
    app.state.receiving, app.state.stops = messages.Receiving(home), lambda: False
    app.middleware("http")(_finished)
    app.add_exception_handler(errors.TxSagaError, _failed)
    for status in (400, 401, 403, 404, 405, 413):
        app.add_exception_handler(status, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.include_router(api.router)
    app.include_router(messages.router)
    if guard.signs_in:
        app.include_router(pages.entrance)
    app.include_router(pages.router)
    _mount_catalog(app, home, guard)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _mount_catalog(app: FastAPI, home: Home, guard: Guard) -> None:
    """Serve the open catalog as well, where its packages are installed."""
    try:
        from txsaga.catalog.app import create_app as catalog_of
        from txsaga.catalog.open_catalog import OpenCatalog
        from txsaga.console.engines import Engines
    except ImportError:
        return
    app.mount("/iceberg", catalog_of(cache(lambda: OpenCatalog(home.broker)), Engines(guard)))


async def _finished(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add the headers of every answer."""
    static = path_of(request).startswith("/static/")  # a mounted application takes the place of this one afterwards
    response = await go_on(request) if (refused := _too_large(request)) is None else refused
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if static:
        response.headers["cache-control"] = "max-age=3600"
    return response


def _too_large(request: Request) -> Response | None:
    """Refuse a request before it is read: its whole body would be kept in memory."""
    if "transfer-encoding" in request.headers:
        return JSONResponse({"error": "the request does not say its length; send content-length"}, 411)
    if int(request.headers.get("content-length", 0)) > LARGEST:
        return JSONResponse({"error": f"the request has more than {LARGEST} bytes"}, 413)
    return None


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.TxSagaError)
    status = 403 if isinstance(error, errors.RightsMissing) else STATUS.get(exits.code_of(error), 400)
    if path_of(request).startswith(messages.router.prefix):
        status = OF_MESSAGES.get(type(error), status)
    return await _told(request, status, str(error))


async def _refused(request: Request, error: Exception) -> Response:
    status, line = getattr(error, "status_code", 500), str(getattr(error, "detail", error))
    if status == 401 and _is_page(request) and request.app.state.guard.signs_in:
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = urlencode({"next": f"{path_of(request)}{query}"})
        return RedirectResponse(f"{pages.place(request, '/sign-in')}?{wanted}", 303)
    return await _told(request, status, line)


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    said, place = first["msg"], first["loc"][-1]
    if first["type"] == "json_invalid":  # its place is a position
        said, place = f"{first['ctx']['error']} at position {place}", "the body is not JSON"
    return await _told(request, 400, f"{place}: {said}")


async def _told(request: Request, status: int, line: str) -> Response:
    if not _is_page(request):
        return JSONResponse({"error": line}, status)
    return pages.trouble(request, status, line, await request.app.state.guard.person(request))


def _is_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not path_of(request).startswith("/api/")
