"""
A replay: commit the messages of a rolled-back transaction in a new one, linked to it, once.

A second run finds the transaction of the first. If it never runs, the messages stay invisible.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow.sdk import BaseOperator, Context

from txsaga.core.arguments import read_number
from txsaga.errors import ConfigError
from txsaga.provider.ambient import AMBIENT
from txsaga.provider.options import store_of
from txsaga.provider.refusing import refused_for_good


class Replay(BaseOperator):
    """Send the messages of a rolled-back transaction again."""

    template_fields: Collection[str] = ("txid", "key", "why")

    def __init__(
        self,
        *,
        txid: int | str | Any,
        key: str | None = None,
        why: str = "replayed by task {{ ti.task_id }} of run {{ run_id }}",
        store: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.txid, self.key, self.why, self.store = txid, key, why, store_of(store)

    def execute(self, context: Context) -> dict[str, object]:
        """Replay the transaction."""
        with refused_for_good():
            txid = read_number(str(self.txid))
            if txid is None:
                raise ConfigError(f"txid is {self.txid!r}; give the number of a transaction")
            who = f"airflow:{context['ti'].dag_id}/{context['ti'].run_id}"
            done = AMBIENT.broker(self.store).replay(txid, key=self.key, who=who, why=self.why)
            return {"txid": done.txid, "replayed_as": done.replayed_as, "again": done.again}
