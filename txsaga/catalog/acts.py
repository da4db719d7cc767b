"""
Changes of namespaces and views: each is done, decided and recorded in one database transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from txsaga.broker import Broker
from txsaga.catalog.refusals import CatalogRefusal
from txsaga.catalog.repeats import Keyed
from txsaga.catalog.store import CatalogStore
from txsaga.catalog.tables import GROUP, CatalogTables
from txsaga.core import facts
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxEvent, TxState
from txsaga.core.records import TxRecord
from txsaga.errors import TxSagaError
from txsaga.iceberg.refusals import BadUpdate, RequirementFailed
from txsaga.messages.decide import DecidedBy
from txsaga.messages.ledger_store import Ledger


class CatalogActs:
    """Does them; a request with a key is done once."""

    def __init__(self, broker: Broker, store: CatalogStore, tables: CatalogTables) -> None:
        self._kernel, self._store, self._tables = broker.kernel, store, tables
        self._group = broker.producer(GROUP).group.id

    def do(self, what: str, change: Callable[[CatalogStore], object], request: Keyed) -> None:
        """Change rows of the catalog."""
        with self._tables.keys.alone(request.scope.key):
            if self._tables.is_done(request):
                return
            try:
                self._once(what, change, request)
            except (CatalogRefusal, BadUpdate, RequirementFailed, TxSagaError) as error:
                self._tables.end(request, error)

    def _once(self, what: str, change: Callable[[CatalogStore], object], request: Keyed) -> None:
        by = DecidedBy(who=request.scope.who, why=f"{what} (request {request.digest})")
        with self._kernel.announce.around(facts.Deciding, about=what), self._kernel.store.ledgers.open() as ledger:
            life = self._opened(ledger, request.scope.key)
            change(self._store.within(ledger.connection))
            ledger.move(life.txid, TxEvent.SEAL)
            self._kernel.decider.within(ledger, life.txid, Decision.COMMIT, by)

    def _opened(self, ledger: Ledger, key: str | None) -> TxRecord:
        latest = None if key is None else ledger.latest(self._group, key)
        if latest is None or latest.state is TxState.ROLLED_BACK:
            life = ledger.create(self._group, key, 1 if latest is None else latest.epoch + 1)
            if life is not None:
                return life
        what = f"another request with Idempotency-Key {key!r} is under way; repeat it later"
        raise CatalogRefusal(503, "ServiceUnavailableException", what)
