"""Why a change of a table or view is refused."""

from __future__ import annotations


class BadUpdate(ValueError):
    """The client's change is invalid: HTTP 400."""


class RequirementFailed(ValueError):
    """The table or view is not as the client requires: HTTP 409."""
