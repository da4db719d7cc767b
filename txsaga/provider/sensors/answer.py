"""
The output of a sensor as its next task gets it: a dict, wherever the sensor ended.

Airflow writes what a task hands on from the triggerer as JSON inside JSON, so its reader would get a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk.definitions.xcom_arg import PlainXComArg

from txsaga.provider.waits.kinds import told_of


class AnswerArg(PlainXComArg):
    """A reference to the answer of a sensor."""

    def resolve(self, context: Mapping[str, Any]) -> Any:
        """Return the answer."""
        return told_of(super().resolve(context))
