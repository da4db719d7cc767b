"""What every store promises of its registry: names are kept, kinds don't mix, transactions are listed."""

# The name of a test is a sentence.

from __future__ import annotations

from uuid import UUID

import pytest

from tests.contracts.samples import (
    COMMIT,
    ROLLBACK,
    decide_life,
    decided,
    end_of,
    new_group,
    new_queues,
    opened,
    prepared,
    row,
    settle,
)
from txsaga.core.lifecycle import TxEvent
from txsaga.core.topic import HALF_TOPIC, OP_TOPIC, TopicType
from txsaga.errors import GroupKindMismatch, TopicExists, TransactionsRejected, UnknownTopic
from txsaga.store.store import Store

ONE, OTHER = UUID(int=1), UUID(int=2)


class RegistryContract:
    """Names and transactions, as the port `Registry` promises them."""

    def test_a_topic_is_found_as_it_was_created(self, store: Store) -> None:
        made = store.registry.create_topic("orders", TopicType.FIFO, 3, retention_seconds=60, retention_bytes=9)
        assert (made.name, made.type, len(made.qids)) == ("orders", TopicType.FIFO, 3)
        assert (made.retention_seconds, made.retention_bytes) == (60, 9)
        assert store.registry.topic("orders") == made

    def test_no_two_topics_share_a_queue(self, store: Store) -> None:
        for name in ("zebra", "apple", "Mango"):
            store.registry.create_topic(name, TopicType.NORMAL, 4)
        topics = store.registry.topics()
        assert [topic.name for topic in topics if topic.name != "Mango"] == ["apple", "zebra"]
        assert len({qid for topic in topics for qid in topic.qids}) == 12

    def test_creating_the_same_topic_again_finds_it(self, store: Store) -> None:
        made = store.registry.create_topic("orders", TopicType.DELAY, 2, retention_seconds=60)
        assert store.registry.create_topic("orders", TopicType.DELAY, 2, retention_seconds=60) == made

    def test_a_topic_may_keep_its_messages_for_another_time(self, store: Store) -> None:
        made = store.registry.create_topic("orders", TopicType.NORMAL, 2, retention_seconds=60)
        altered = store.registry.alter_topic("orders", None, 1_000)
        assert (altered.retention_seconds, altered.retention_bytes) == (None, 1_000)
        assert store.registry.topic("orders") == altered
        assert (altered.id, altered.qids) == (made.id, made.qids)
        with pytest.raises(UnknownTopic):
            store.registry.alter_topic("nowhere", None, None)

    def test_a_topic_with_other_settings_is_refused(self, store: Store) -> None:
        made = store.registry.create_topic("orders", TopicType.NORMAL, 2)
        for type, queues, retention in (
            (TopicType.FIFO, 2, None),
            (TopicType.NORMAL, 3, None),
            (TopicType.NORMAL, 2, 60),
        ):
            with pytest.raises(TopicExists):
                store.registry.create_topic("orders", type, queues, retention)
        assert store.registry.topic("orders") == made

    @pytest.mark.req("RMQ-17", "RMQ-22")
    @pytest.mark.parametrize("name", ["nowhere", HALF_TOPIC, OP_TOPIC])
    def test_what_is_no_topic_of_a_user_is_unknown(self, store: Store, name: str) -> None:
        (qid,), group = new_queues(store), new_group(store)
        decided(store, end_of(prepared(store, group, row(qid, "a")), ROLLBACK))
        with pytest.raises(UnknownTopic):
            store.registry.topic(name)

    @pytest.mark.req("RMQ-76")
    @pytest.mark.parametrize("transactional", [True, False])
    def test_a_group_is_of_one_kind(self, store: Store, transactional: bool) -> None:
        group = store.registry.group("shop", transactional=transactional)
        assert (group.name, group.transactional) == ("shop", transactional)
        with pytest.raises(GroupKindMismatch):
            store.registry.group("shop", transactional=not transactional)
        assert store.registry.group("shop") == group
        assert store.registry.group("travel") == store.registry.group("travel", transactional=transactional)
        assert store.registry.group("shop", transactional=transactional) == group
        assert store.registry.group_by_id(group.id) == group
        assert store.registry.find_group("shop") == group
        assert store.registry.find_group("nobody") is None

    def test_no_two_groups_have_the_same_number(self, store: Store) -> None:
        assert len({new_group(store, name) for name in ("shop", "bank", "mail")}) == 3

    @pytest.mark.rule("R10")
    def test_a_resource_is_pinned_to_its_database(self, store: Store) -> None:
        first = store.registry.resource("billing", ONE)
        moved = store.registry.resource("billing", OTHER)
        assert (first.name, first.database) == ("billing", ONE)
        assert store.registry.resource("billing", ONE) == first
        assert store.registry.resource_by_id(first.id).database == ONE
        assert store.registry.resource_by_id(moved.id).database == OTHER

    @pytest.mark.rule("R8")
    def test_a_store_says_who_it_is(self, store: Store) -> None:
        identity = store.registry.identity
        assert identity == store.registry.identity
        assert identity.own(identity.transaction(42)) == 42

    def test_the_switch_for_halves_is_off_until_it_is_set(self, store: Store) -> None:
        seen = [store.registry.rejects_transactions]
        for rejecting in (True, True, False):
            store.registry.reject_transactions(rejecting)
            seen.append(store.registry.rejects_transactions)
        assert seen == [False, True, True, False]

    @pytest.mark.req("RMQ-52")
    @pytest.mark.parametrize("key", ["order-42", None])
    def test_a_rejecting_store_opens_no_life_and_lets_nobody_take_one_over(self, store: Store, key: str | None) -> None:
        group = new_group(store)
        life = opened(store, group, "before")
        store.registry.reject_transactions(True)
        with pytest.raises(TransactionsRejected, match="NO_PERMISSION"), store.ledgers.open() as ledger:
            ledger.create(group, key, 1)
        with pytest.raises(TransactionsRejected, match="NO_PERMISSION"), store.ledgers.open() as ledger:
            ledger.take_over(life.txid)
        assert [view.txid for view in store.overview.transactions(undecided=True, limit=10)] == [life.txid]
        settle(store, life, COMMIT)  # what is there already comes to its end
        store.registry.reject_transactions(False)
        assert opened(store, group, key).owner == 1

    @pytest.mark.req("IBM-10", "RMQ-20")
    def test_transactions_are_listed_with_their_outcome(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, text)) for text in "abc"]
        decided(store, end_of(receipts[0], COMMIT))
        decided(store, end_of(receipts[1], ROLLBACK, from_check=True))
        listed = store.overview.transactions(undecided=False, limit=10)
        assert [(view.txid, view.state, view.decision, view.from_check) for view in listed] == [
            (receipts[2].txid, "prepared", None, False),
            (receipts[1].txid, "rolled_back", ROLLBACK, True),
            (receipts[0].txid, "committed", COMMIT, False),
        ]

    def test_undecided_transactions_are_listed_alone_on_request(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipts = [prepared(store, group, row(qid, text)) for text in "abc"]
        lives = [opened(store, group, key) for key in ("one", "two")]
        decided(store, end_of(receipts[2], COMMIT))
        with store.ledgers.open() as ledger:
            decide_life(ledger, lives[1].txid, ROLLBACK, from_check=True)
        wanted = [lives[0].txid, receipts[1].txid, receipts[0].txid]
        assert [view.txid for view in store.overview.transactions(undecided=True, limit=10)] == wanted
        assert [view.txid for view in store.overview.transactions(undecided=True, limit=2)] == wanted[:2]

    def test_a_keyed_transaction_is_shown_with_key_epoch_and_resource(self, store: Store) -> None:
        group, resource = new_group(store), store.registry.resource("billing", ONE)
        life = opened(store, group, "order-42")
        with store.ledgers.open() as ledger:
            ledger.move(life.txid, TxEvent.SEAL, evidence=resource.id)
        view = store.overview.transaction(life.txid)
        assert view is not None
        assert (view.id, view.group) == (store.registry.identity.transaction(life.txid), "shop")
        assert (view.key, view.epoch, view.state, view.resource) == ("order-42", 1, "sealed", "billing")
        assert (view.decision, view.from_check) == (None, False)
        assert store.overview.transaction(life.txid + 1000) is None

    def test_a_plain_half_is_shown_without_a_key(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        receipt = prepared(store, group, row(qid, "a"), row(qid, "b", chunk=1))
        view = store.overview.transaction(receipt.txid)
        assert view is not None
        assert (view.txid, view.group, view.key, view.epoch, view.resource) == (
            receipt.txid, "shop", None, None, None
        )  # fmt: skip
        assert view.born == store.halves.views(receipt.txid)[0].born

    @pytest.mark.req("WM-42")
    def test_a_store_knows_its_cluster(self, store: Store) -> None:
        seen = [store.registry.cluster]
        for name in ("shop", "bank", None):
            store.registry.join_cluster(name)
            seen.append(store.registry.cluster)
        assert seen == [None, "shop", "bank", None]
