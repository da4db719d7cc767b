"""A reverse proxy that serves an application under a prefix, and removes it from what it passes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from tests.console.listening import listening

PREFIX = "/txsaga"
DROPPED = ("host", "content-length", "transfer-encoding", "connection", "content-encoding", "accept-encoding")


@contextmanager
def proxied(app: FastAPI) -> Iterator[str]:
    """Serve an application behind the proxy; give the proxy's address with the prefix."""
    with listening(app, PREFIX) as upstream:
        proxy = FastAPI()

        @proxy.api_route(PREFIX + "/{path:path}", methods=["GET", "POST"])
        async def passed_on(request: Request, path: str) -> Response:
            client = httpx.AsyncClient(base_url=upstream, timeout=30)
            headers = [(name, value) for name, value in request.headers.items() if name not in DROPPED]
            place = f"/{path}?{request.url.query}" if request.url.query else f"/{path}"
            sent = client.build_request(request.method, place, headers=headers, content=await request.body())
            answer = await client.send(sent, stream=True)

            async def body() -> AsyncIterator[bytes]:
                try:
                    async for part in answer.aiter_raw():
                        yield part
                finally:
                    await answer.aclose()
                    await client.aclose()

            passed = StreamingResponse(body(), answer.status_code)
            for name, value in answer.headers.multi_items():
                if name not in DROPPED:
                    passed.headers.append(name, value)
            return passed

        with listening(proxy) as address:
            yield address + PREFIX
