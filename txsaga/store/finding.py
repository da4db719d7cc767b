"""Findings of an examination of a store: one line each, how bad it is, and what helps."""

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
    """The result of one check."""

    what: str
    severity: Severity
    found: str
    remedy: str | None = None


def ok(what: str, found: str, remedy: str | None = None) -> Finding:
    """Report that all is as it should be; a remedy is only a hint."""
    return Finding(what=what, severity=Severity.OK, found=found, remedy=remedy)


def warning(what: str, found: str, remedy: str) -> Finding:
    """Report what an operator should examine."""
    return Finding(what=what, severity=Severity.WARNING, found=found, remedy=remedy)


def error(what: str, found: str, remedy: str | None) -> Finding:
    """Report what does not work, or loses acknowledged data."""
    return Finding(what=what, severity=Severity.ERROR, found=found, remedy=remedy)
