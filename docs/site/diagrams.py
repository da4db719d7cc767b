"""
Draws the mermaid blocks of pages as SVG while the site is built: a reader's browser needs no script and no network.

`make docs` sets `mermaid` to the path of mermaid's script. Without it a diagram is shown as its text.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CHROMIUM = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
THEMES = {"default": "only-light", "dark": "only-dark"}
"""Themes of mermaid, and the class by which the site shows a drawing in its own light or dark theme."""
DRAW = """async ([id, text, theme]) => {
    mermaid.initialize({startOnLoad: false, theme});
    try {
        return [(await mermaid.render(id, text)).svg, null];
    } catch (wrong) {
        return [null, wrong.message];
    }
}"""


class Pen:
    """A browser without a window that draws diagrams; started by the first one."""

    def __init__(self) -> None:
        self._page: Any = None  # of Playwright, which is imported only here
        self._open = ExitStack()

    def draw(self, script: str, text: str, theme: str) -> str:
        """Return a diagram as SVG; ValueError says what is wrong with its text."""
        self._page = self._page or self._start(script)
        name = f"{theme}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"  # its styles are bound to this id
        drawn, wrong = self._page.evaluate(DRAW, [name, text, theme])
        if wrong:
            raise ValueError(wrong)
        return str(drawn)

    def _start(self, script: str) -> Any:
        # SystemExit, because Sphinx prints a traceback for any other error.
        place = next(filter(None, map(shutil.which, CHROMIUM)), None)
        if place is None:
            raise SystemExit("diagrams are drawn by Chromium: apt-get install chromium fonts-dejavu-core")
        try:
            from playwright.sync_api import sync_playwright
        except ImportError:
            raise SystemExit("diagrams are drawn with playwright: make venv") from None
        playwright = self._open.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=place)
        self._open.callback(browser.close)
        page = browser.new_page()
        page.add_script_tag(path=script)
        return page

    def close(self, *_: object) -> None:
        """End the browser."""
        self._open.close()


class Diagram(SphinxDirective):
    """A block of mermaid."""

    has_content = True
    pen = Pen()

    def run(self) -> list[nodes.Node]:
        """Put the drawings in place of the text."""
        text = "\n".join(self.content)
        if not self.config.mermaid:
            return [nodes.literal_block(text, text, language="text")]
        try:
            drawn = {shown: self.pen.draw(self.config.mermaid, text, theme) for theme, shown in THEMES.items()}
        except ValueError as wrong:
            raise self.error(f"this diagram cannot be drawn: {wrong}") from None
        html = "\n".join(f'<div class="{shown}">{svg}</div>' for shown, svg in drawn.items())
        return [nodes.raw("", html, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Join Sphinx."""
    app.add_config_value("mermaid", "", "env", types=frozenset({str}))
    app.add_directive("mermaid", Diagram)
    app.connect("build-finished", Diagram.pen.close)
    return {"parallel_read_safe": False}
