"""What every store promises of home effects and pointers: they move with the decision, all of them or none."""

# The name of a test is a sentence.

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.contracts.samples import COMMIT, ROLLBACK, new_group, opened, settle
from txsaga.core.decision import Decision
from txsaga.errors import PointerMoved, TransactionError
from txsaga.lake.lake import HomeCatalog
from txsaga.lake.table import Effect, Swap, TableName
from txsaga.store.store import Store

LEDGER, POSTING = TableName("txsaga", "bank", "ledger"), TableName("txsaga", "bank", "posting")


def _pointers(store: Store) -> Mapping[TableName, str]:
    known: Mapping[TableName, str] | None = getattr(store, "pointers", None)  # of a store in memory
    return HomeCatalog(LEDGER.catalog, store.engine).pointers([LEDGER, POSTING]) if known is None else known


class EffectContract:
    """Effects and pointers, as the port `TableLedger` promises them."""

    @pytest.mark.rule("R4")
    def test_only_effects_of_the_attempt_that_won_its_part_count(self, store: Store) -> None:
        life = opened(store, new_group(store))
        first, second = (Effect("table", 1, attempt, {"number": attempt, "big": 2**62 + 1}) for attempt in (1, 2))
        with store.ledgers.open() as ledger:
            ledger.keep(life.txid, [first, second])
            assert not ledger.effects(life.txid)
            ledger.win(life.txid, 1, 2)
        with store.ledgers.open() as ledger:
            assert ledger.effects(life.txid) == [second]

    def test_effects_keep_their_order(self, store: Store) -> None:
        life = opened(store, new_group(store))
        kept = [Effect("table", 1, 1, {"number": number}) for number in range(12)]
        with store.ledgers.open() as ledger:
            for each in kept:
                ledger.keep(life.txid, [each])
            ledger.win(life.txid, 1, 1)
        with store.ledgers.open() as ledger:
            assert ledger.effects(life.txid) == kept

    @pytest.mark.rule("R3")
    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_a_decided_transaction_reserves_no_table(self, store: Store, decision: Decision) -> None:
        life = opened(store, new_group(store))
        settle(store, life, decision)
        with pytest.raises(TransactionError), store.ledgers.open() as ledger:
            ledger.reserve_table(life.txid, LEDGER, [""])

    def test_a_table_is_there_once_its_pointer_is(self, store: Store) -> None:
        with store.ledgers.open() as ledger:
            ledger.swap([Swap(LEDGER, None, "file:/0.json")])
            assert _pointers(store) == {}
        assert _pointers(store) == {LEDGER: "file:/0.json"}

    @pytest.mark.rule("R2")
    def test_pointers_move_all_or_none(self, store: Store) -> None:
        created = [Swap(LEDGER, None, "0"), Swap(POSTING, None, "0")]
        with store.ledgers.open() as ledger:
            ledger.swap(created)
        for stale in (Swap(POSTING, "9", "1"), Swap(POSTING, None, "1")):
            with pytest.raises(PointerMoved), store.ledgers.open() as ledger:
                ledger.swap([Swap(LEDGER, "0", "1"), stale])
        assert _pointers(store) == {LEDGER: "0", POSTING: "0"}
        with store.ledgers.open() as ledger:
            ledger.swap([Swap(POSTING, "0", "1"), Swap(LEDGER, "0", "1")])
        assert _pointers(store) == {LEDGER: "1", POSTING: "1"}

    def test_one_undecided_transaction_overwrites_a_part_of_a_table(self, store: Store) -> None:
        group = new_group(store)
        first, second = (opened(store, group, key) for key in ("one", "two"))
        with store.ledgers.open() as ledger:
            assert ledger.reserve_table(first.txid, LEDGER, ["day=1", "day=2"]) is None
            assert ledger.reserve_table(first.txid, LEDGER, ["day=1"]) is None
            assert ledger.reserve_table(second.txid, LEDGER, ["day=2", "day=3"]) == first.txid
            assert ledger.reserve_table(second.txid, LEDGER, [""]) == first.txid
            assert ledger.reserve_table(second.txid, LEDGER, ["day=3"]) is None
            assert ledger.reserve_table(second.txid, POSTING, [""]) is None
            assert ledger.reserve_table(first.txid, POSTING, ["day=1"]) == second.txid

    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_what_is_decided_overwrites_no_more(self, store: Store, decision: Decision) -> None:
        group = new_group(store)
        first, second = (opened(store, group, key) for key in ("one", "two"))
        with store.ledgers.open() as ledger:
            ledger.reserve_table(first.txid, LEDGER, ["day=1"])
        settle(store, first, decision)
        with store.ledgers.open() as ledger:
            assert ledger.reserve_table(second.txid, LEDGER, ["day=1"]) is None
