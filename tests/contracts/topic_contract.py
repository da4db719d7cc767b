"""What every store promises of topics that go or change, and of groups: only while nothing needs them as they are."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.claiming import GROUP, acked, buried, due, filled, offsets, take, taken
from tests.contracts.samples import (
    COMMIT,
    LONG,
    ROLLBACK,
    add,
    answered,
    claimed,
    decided,
    drain,
    end_of,
    new_group,
    new_queues,
    opened,
    position,
    prepared,
    published,
    read,
    row,
    settle,
)
from txsaga.consume.claim import Policy, Style
from txsaga.core.records import Due, Half
from txsaga.core.topic import TopicType
from txsaga.errors import (
    GroupInUse,
    GroupKindMismatch,
    LeaseLost,
    TopicInUse,
    TopicNotRead,
    UnknownGroup,
    UnknownTopic,
)
from txsaga.store.store import Store


class TopicContract:
    """`Registry.delete_topic` and `alter_topic`, `Queues.purge`, `ConsumerGroups.delete`."""

    @pytest.mark.parametrize("kind", ["half", "plain", "later", "two rows"])
    def test_a_deleted_topic_takes_no_message_of_one_who_knows_its_queues(self, store: Store, kind: str) -> None:
        (old,), (other,), group = new_queues(store), new_queues(store, "news"), new_group(store)
        receipt = prepared(store, group, row(other, "a"))
        store.registry.delete_topic("orders")
        rows = [row(other, "c"), row(old, "d")] if kind == "two rows" else [row(old, "d")]
        refused = Half(group, rows, plain=kind == "plain", due=Due(LONG) if kind == "later" else None)
        for halves in ([refused], [Half(group, [row(other, "b")], plain=True), refused]):
            with pytest.raises(UnknownTopic, match="'orders'"):
                store.halves.write(halves, [end_of(receipt, COMMIT)])
        assert [view.state for view in store.overview.transactions(limit=9)] == ["prepared"]
        store.halves.write([Half(group, [row(other, "e")], plain=True)], [end_of(receipt, COMMIT)])
        assert sorted(read(store, other)) == ["a", "e"]

    def test_a_keyed_transaction_can_not_add_to_a_deleted_topic(self, store: Store) -> None:
        (old,), (other,), life = new_queues(store), new_queues(store, "news"), opened(store, new_group(store))
        store.registry.delete_topic("orders")
        with pytest.raises(UnknownTopic, match="'orders'"):
            add(store, life, 1, row(other, "a"), row(old, "b"))
        add(store, life, 1, row(other, "c"))
        settle(store, life, COMMIT)
        assert read(store, other) == ["c"]

    def test_the_name_of_a_deleted_topic_is_free(self, store: Store) -> None:
        (old,), group = new_queues(store), new_group(store)
        published(store, group, row(old, "old"))
        drain(store)
        store.registry.delete_topic("orders")
        with pytest.raises(UnknownTopic):
            store.registry.topic("orders")
        assert store.registry.topics() == []
        made = store.registry.create_topic("orders", TopicType.NORMAL, 2)
        assert old not in made.qids
        published(store, group, row(made.qids[0], "new"))
        assert read(store, made.qids[0]) == ["new"]
        store.registry.delete_topic("orders")
        for qid in (old, *made.qids):
            with pytest.raises(UnknownTopic, match="'orders'"):
                published(store, group, row(qid, "late"))

    def test_a_topic_that_a_group_reads_stays(self, store: Store) -> None:
        qid = filled(store, "a")
        with pytest.raises(TopicInUse, match=GROUP):
            store.registry.delete_topic("orders")
        store.queues.forget(GROUP, [qid])
        store.registry.delete_topic("orders")
        with pytest.raises(UnknownTopic, match="'orders'"):
            store.queues.create_cursors(GROUP, {qid: 0})
        assert store.overview.readings() == []

    @pytest.mark.parametrize("kind", ["half", "later", "keyed"])
    def test_a_topic_with_undecided_messages_stays(self, store: Store, kind: str) -> None:
        (qid,), group = new_queues(store), new_group(store)
        if kind == "keyed":
            life = opened(store, group)
            add(store, life, 1, row(qid, "a"))
            txid = life.txid
        else:
            half = Half(group, [row(qid, "a")], due=Due(LONG) if kind == "later" else None)
            receipt = answered(store.halves.write([half], ()).receipts[0])
            txid = receipt.txid
        for refused in (
            lambda: store.registry.delete_topic("orders"),
            lambda: store.registry.alter_topic("orders", None, None, TopicType.NORMAL),
        ):
            with pytest.raises(TopicInUse, match=f"transaction {txid}"):
                refused()
        if kind == "keyed":
            settle(store, life, ROLLBACK)
        else:
            decided(store, end_of(receipt, ROLLBACK))
        store.registry.delete_topic("orders")

    def test_an_unknown_topic_is_neither_deleted_nor_altered(self, store: Store) -> None:
        with pytest.raises(UnknownTopic):
            store.registry.delete_topic("nowhere")
        with pytest.raises(UnknownTopic):
            store.registry.alter_topic("nowhere", None, None, TopicType.FIFO)

    def test_an_empty_topic_gets_another_type(self, store: Store) -> None:
        (qid,), group = new_queues(store), new_group(store)
        published(store, group, row(qid, "a"))
        drain(store)
        with pytest.raises(TopicInUse):
            store.registry.alter_topic("orders", 60, None, TopicType.FIFO)
        assert store.registry.alter_topic("orders", 60, None, TopicType.TRANSACTION).qids == (qid,)
        assert store.queues.purge([qid]) == 1
        altered = store.registry.alter_topic("orders", 60, None, TopicType.FIFO)
        assert (altered.type, altered.retention_seconds, len(altered.qids)) == (TopicType.FIFO, 60, 1)
        assert store.registry.topic("orders") == altered
        with pytest.raises(UnknownTopic, match="'orders'"):
            published(store, group, row(qid, "of the other type"))

    def test_a_topic_that_a_group_reads_keeps_its_type(self, store: Store) -> None:
        qid = filled(store, "a")
        store.queues.purge([qid])
        with pytest.raises(TopicInUse, match=GROUP):
            store.registry.alter_topic("orders", None, None, TopicType.FIFO)
        store.queues.forget(GROUP, [qid])
        assert store.registry.alter_topic("orders", None, None, TopicType.FIFO).type is TopicType.FIFO

    def test_purged_messages_reach_no_group(self, store: Store) -> None:
        qid = filled(store, *"abc")
        assert acked(store, taken(store, qid, limit=1)) == [True]
        store.claims.put_back(taken(store, qid, limit=1), timedelta(0), "broken")
        undecided = prepared(store, new_group(store), row(qid, "d"))
        assert store.queues.purge([qid]) == 3
        assert store.log.bounds([qid])[qid] == (3, 3)
        assert position(store, qid) == 3
        assert (take(store, qid), due(store, qid)) == (None, [])
        decided(store, end_of(undecided, COMMIT))
        drain(store)
        assert offsets(taken(store, qid)) == [3]

    def test_messages_that_a_member_works_on_are_not_purged(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = taken(store, qid, limit=1)
        with pytest.raises(GroupInUse):
            store.queues.purge([qid])
        assert offsets(taken(store, qid)) == [1, 2]
        assert acked(store, claim) == [True]

    def test_a_stream_that_fell_silent_does_not_move_a_purged_queue(self, store: Store) -> None:
        qid = filled(store, *"abc")
        claim = claimed(store, qid)
        store.queues.leave(GROUP, "anna", ["orders"])
        store.queues.purge([qid])
        with pytest.raises(LeaseLost):
            store.queues.advance(claim, "anna", 1)

    def test_a_group_is_deleted_with_its_positions_and_retries(self, store: Store) -> None:
        qid = filled(store, *"abc")
        store.groups.open(GROUP, Style.WORK, Policy())
        buried(store, taken(store, qid, limit=1), "broken")
        claim = taken(store, qid, limit=1)
        with pytest.raises(GroupInUse):
            store.groups.delete(GROUP)
        store.claims.put_back(claim, timedelta(0), "broken")
        store.groups.delete(GROUP)
        assert store.groups.find(GROUP) is None
        assert (store.overview.readings(), due(store, qid)) == ([], [])
        assert len(store.dead_letters.list(GROUP, 9)) == 1
        for refused in (lambda: store.groups.delete(GROUP), lambda: store.groups.touch(GROUP, Style.WORK)):
            with pytest.raises(UnknownGroup):
                refused()

    def test_cursors_of_a_group_that_was_deleted_meanwhile_do_not_stay(self, store: Store) -> None:
        filled(store, "a")
        store.groups.expire()
        store.registry.delete_topic("orders")

    def test_a_topic_with_dead_letters_stays(self, store: Store) -> None:
        qid = filled(store, "a")
        store.groups.open(GROUP, Style.WORK, Policy())
        buried(store, taken(store, qid), "broken")
        (letter,) = store.dead_letters.list(GROUP, 9)
        with pytest.raises(TopicInUse, match="letters"):
            store.registry.delete_topic("orders")
        store.queues.forget(GROUP, [qid])
        assert store.dead_letters.replay([letter.id]) == 0
        with pytest.raises(TopicInUse, match="letters"):
            store.registry.delete_topic("orders")
        assert store.dead_letters.purge([letter.id]) == 1
        store.registry.delete_topic("orders")

    def test_a_member_of_a_group_that_was_made_anew_takes_nothing_in_the_old_way(self, store: Store) -> None:
        qid = filled(store, *"abc")
        for style, policy in ((Style.STREAM, Policy()), (Style.WORK, Policy(ordered=True))):
            store.groups.open(GROUP, style, policy)
            store.queues.create_cursors(GROUP, {qid: 0})
            assert take(store, qid) is None
            store.groups.delete(GROUP)
        store.groups.open(GROUP, Style.WORK, Policy())
        store.queues.create_cursors(GROUP, {qid: 0})
        assert store.claims.unread(GROUP, [qid], 0, 9, 99) is None
        with pytest.raises(GroupKindMismatch):
            store.groups.touch(GROUP, Style.STREAM)
        assert offsets(taken(store, qid)) == [0, 1, 2]

    def test_a_member_learns_that_its_group_left_a_queue(self, store: Store) -> None:
        qid = filled(store, "a")
        store.groups.open(GROUP, Style.WORK, Policy())
        store.groups.touch(GROUP, Style.WORK, [qid])
        store.queues.forget(GROUP, [qid])
        with pytest.raises(TopicNotRead, match="'orders'"):
            store.groups.touch(GROUP, Style.WORK, [qid])
        other = filled(store, "b", name="news")
        store.groups.touch(GROUP, Style.WORK, [qid, other])
