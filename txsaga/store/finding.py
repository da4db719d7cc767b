"""What an examination of a store finds: one line each, how bad it is, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    what: str
    severity: Severity
    found: str
    remedy: str | None = None


def ok(what: str, found: str, remedy: str | None = None) -> Finding:
    """Say that something is as it should be; a remedy is a hint there."""
    return Finding(what=what, severity=Severity.OK, found=found, remedy=remedy)


def warning(what: str, found: str, remedy: str) -> Finding:
    """Say that somebody should look."""
    return Finding(what=what, severity=Severity.WARNING, found=found, remedy=remedy)


def error(what: str, found: str, remedy: str | None) -> Finding:
    """Say that something does not work, or loses what was acknowledged."""
    return Finding(what=what, severity=Severity.ERROR, found=found, remedy=remedy)
