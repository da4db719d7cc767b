"""
Addresses as people may see them, in errors, logs and reprs.

An address may be malformed, so no parser decides which part is secret: everything before its last @ is, and all values
of its options.
"""

from __future__ import annotations

import re

MASK = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OPTIONS = re.compile(r"([?&#;=]).*", re.DOTALL)
_NO_PORT = re.compile(r":(?!\d+(?:\W|$)).*", re.DOTALL)


def redacted(address: str) -> str:
    """Return an address without its login and the values of its options."""
    found = _SCHEME.match(address)
    scheme = found[0] if found else ""
    login, at, place = address[len(scheme) :].rpartition("@")
    if "?" in login or "&" in login:  # this @ may be part of an option
        place = ""
    if scheme:  # without its host, a login looks like a host and its port
        place = _NO_PORT.sub(f":{MASK}", place)
    return scheme + (MASK + at if at else "") + _OPTIONS.sub(rf"\1{MASK}", place)
