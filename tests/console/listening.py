"""Serving an application in a thread of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def listening(app: FastAPI, root_path: str = "") -> Iterator[str]:
    """Serve an application on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, root_path=root_path))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listens]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listens.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
