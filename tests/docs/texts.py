"""What the product shows to a user: messages, help, docstrings of public names, pages of the console."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import txsaga
from tests.architecture.measures import modules
from tests.architecture.sources import PACKAGE, from_root
from tests.docs import command_line
from tests.docs.test_reference import PUBLIC, ROCKETMQ
from txsaga import provider, testing

NAMES = {*txsaga.__all__, *provider.__all__, *testing.__all__, *PUBLIC, *ROCKETMQ}
TEMPLATES = PACKAGE / "console" / "templates"
NOT_OURS = "txsaga.iceberg."
"""Iceberg's own messages, word by word."""
CODE = re.compile(r"`[^`]*`|\{[^{}]*\}")
PLACEHOLDER = re.compile(r"\{\{.*?\}\}", re.S)
TAG = re.compile(r"\{%.*?%\}|\{#.*?#\}|<[^>]*>", re.S)
Written = ast.Constant | ast.JoinedStr
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def texts() -> list[tuple[str, str]]:
    """Return every text with the place that it is from."""
    return list(_read())


def _read() -> Iterator[tuple[str, str]]:
    yield "the help", CODE.sub("x", command_line.commands())
    for module in modules():
        if not module.name.startswith(NOT_OURS):
            for node, text in [*_docstrings(module.tree.body, public=False), *_messages(module.tree)]:
                if len(text.split()) > 2:
                    yield f"{from_root(module.path)}:{node.lineno}", CODE.sub("x", text)
    for page in sorted(TEMPLATES.glob("*.html")):
        yield from_root(page), TAG.sub(" ", PLACEHOLDER.sub("x", page.read_text("utf-8")))


def _docstrings(body: list[ast.stmt], *, public: bool) -> Iterator[tuple[Written, str]]:
    """Yield those of public names; in a public class also those of its methods and attributes."""
    for node in body:
        if isinstance(node, Documented) and not node.name.startswith("_") and (public or node.name in NAMES):
            yield from _docstrings(node.body if isinstance(node, ast.ClassDef) else node.body[:1], public=True)
        elif public and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value, str(node.value.value)


def _messages(tree: ast.Module) -> Iterator[tuple[Written, str]]:
    """Yield what may be a message: strings that are no docstrings, a placeholder as `x`."""
    statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    pieces = {piece for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(str(each.value) if isinstance(each, ast.Constant) else "x" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in statements | pieces:
            yield node, node.value
