"""A thread that can't be started once, as where there are too many."""

from __future__ import annotations

import threading

import pytest


def fail_to_start_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the first start of a thread of this name fail."""
    start, fails = threading.Thread.start, [True]

    def started(thread: threading.Thread) -> None:
        if fails and thread.name == name:
            fails.clear()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
