"""
A browser for tests: the Chromium of the distribution, driven by Playwright, which brings none here.

Pictures of what it shows are kept only where TXSAGA_PICTURES names a folder: `make pictures` fills the documentation's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.services.absent import ci_or_skip

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
SIZE = {"width": 1280, "height": 800}
PATIENCE = 60.0
"""Seconds that a page has on a busy machine."""
FOLDER = "TXSAGA_PICTURES"
MOST = 150_000
"""Bytes of a picture."""
Page = Any
"""Playwright brings types, and is not there everywhere."""


@contextmanager
def browser() -> Iterator[Page]:
    """Start one."""
    place = os.environ.get("TXSAGA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if place is None:
        ci_or_skip("Chromium", "apt-get install -y --no-install-recommends chromium fonts-dejavu-core")
    if find_spec("playwright") is None:
        ci_or_skip("playwright", "make venv")
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=place)
        try:
            yield started
        finally:
            started.close()


@contextmanager
def page_of(started: Page, url: str, login: str, password: str) -> Iterator[Page]:
    """Open a page of a user interface of Airflow, as somebody who has logged in."""
    context = started.new_context(viewport=SIZE, base_url=url, locale="en-US", reduced_motion="reduce")
    context.set_default_timeout(1000 * PATIENCE)
    try:
        page = context.new_page()
        page.goto("/")
        page.locator("input[name=username]").fill(login)
        page.locator("input[name=password]").fill(password)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_test_id("nav-dags-link").wait_for()
        yield page
    finally:
        context.close()


def keep(page: Page, name: str) -> None:
    """Keep a picture of a page, where that is asked for."""
    if folder := os.environ.get(FOLDER):
        place = Path(folder) / f"{name}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=place, animations="disabled")
        assert place.stat().st_size < MOST, f"{place} has {place.stat().st_size} bytes: show less of the page"
