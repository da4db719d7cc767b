"""
Reads the part of YAML that `docker-compose.yml` keeps to: mappings by indentation, lists of one-line items.

Anything else is an error, so the file stays plain. It does not know what compose allows.
"""

import json
from collections.abc import Iterator

Value = str | list[str] | dict[str, "Value"] | None
Line = tuple[int, str]


def parse(text: str) -> dict[str, Value]:
    """Read a document."""
    lines = list(_lines(text))
    found = _mapping(lines, 0)
    if lines:
        raise ValueError(f"can't read {lines[0][1]!r}")
    return found


def _lines(text: str) -> Iterator[Line]:
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield len(line) - len(line.lstrip()), stripped


def _mapping(lines: list[Line], indent: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        key, colon, rest = lines.pop(0)[1].partition(":")
        if not colon or key in found:
            raise ValueError(f"{key!r} is no key, or stands twice")
        found[key] = _scalar(rest.strip()) if rest else _block(lines, indent)
    return found


def _block(lines: list[Line], indent: int) -> Value:
    if not lines or lines[0][0] <= indent:
        return None
    inner, first = lines[0]
    if not first.startswith("- "):
        return _mapping(lines, inner)
    items: list[str] = []
    while lines and lines[0][0] == inner and lines[0][1].startswith("- "):
        items.append(lines.pop(0)[1].removeprefix("- ").strip('"'))
    return items


def _scalar(text: str) -> Value:
    if text.startswith("["):
        listed: list[str] = json.loads(text)
        return listed
    return text.strip('"')
