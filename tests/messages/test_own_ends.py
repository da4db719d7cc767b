"""What a session stored itself it decides without a look at the half; nothing else may come of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text

from tests.contracts.samples import COMMIT, ROLLBACK, answered, decided, end_of, new_group, new_queues, prepared, row
from tests.scene.stored import Stored
from tests.store.past import SPAN
from tests.store.past import Scene as Past
from txsaga.core.decision import Decision
from txsaga.core.records import End, Half, Receipt
from txsaga.errors import EndRefused, StoreError, TransactionsRejected, TxSagaError, UnknownTransaction
from txsaga.messages import halves_store
from txsaga.messages.hot_statements import StatementForm
from txsaga.store import schema
from txsaga.store.connection import transaction
from txsaga.store.values import Value
from txsaga.store.wire import Call, LibpqSession
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R14")]


class Scene:
    """A store, another one on the same home, and which ends went the short way."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.other = open_store(url), open_store(url)
        self.group, (self.queue,) = new_group(self.store), new_queues(self.store)
        self.short: list[int] = []
        self.stored: list[str] = []
        hot = self.store.halves._hot
        assert hot.lone is not None and hot.prepare_alike is not None
        self.lone, self.general = hot.lone.store, hot.prepare_alike.one
        exchanged, laid_out = LibpqSession.exchange, halves_store._own_call
        sent: list[tuple[Call, list[int]]] = []

        def own_call(form: StatementForm, ends: Sequence[End], here: Sequence[Value]) -> Call:
            sent.append((laid_out(form, ends, here), [end.txid for end in ends]))
            return sent[-1][0]

        def exchange(wire: LibpqSession, calls: list[Call], **how: Any) -> Any:  # as the real one answers
            self.stored += [call.sql for call in calls if call.sql in (self.lone, self.general)]
            rows = exchanged(wire, calls, **how)
            self.short += [txid for own, numbers in sent if any(call is own for call in calls) for txid in numbers]
            return rows

        monkeypatch.setattr(halves_store, "_own_call", own_call)
        monkeypatch.setattr(LibpqSession, "exchange", exchange)

    def prepared(self, **how: Any) -> Receipt:  # as a half takes it
        return answered(self.store.halves.write([Half(self.group, [row(self.queue, "a")], **how)], ()).receipts[0])

    def decisions(self) -> dict[int, Decision]:
        return {txid: Decision(made) for txid, made in self.sql("SELECT txid, decision FROM {s}.op")}

    def sql(self, statement: str) -> Sequence[Any]:
        with transaction(self.store.engine) as connection:
            done = connection.execute(text(statement.format(s=self.store.namespace)))
            return done.all() if done.returns_rows else []


@pytest.fixture
def scene(home_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(home_url, monkeypatch)
    yield made
    made.store.close()
    made.other.close()


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("count", [1, 3])
def test_own_halves_are_decided_the_short_way(scene: Scene, decision: Decision, count: int) -> None:
    receipts = [scene.prepared() for _ in range(count)]
    answers = scene.store.halves.write((), [end_of(each, decision) for each in receipts]).standings
    assert [answered(each).won for each in answers] == [True] * count
    assert scene.short == [each.txid for each in receipts]
    assert scene.decisions() == {each.txid: decision for each in receipts}


def test_halves_of_others_are_looked_at(scene: Scene) -> None:
    receipt = prepared(scene.other, scene.group, row(scene.queue, "a"))
    assert decided(scene.store, end_of(receipt, COMMIT)).won
    assert scene.short == []


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_the_first_decision_stands(scene: Scene, first: Decision, elsewhere: bool) -> None:
    receipt = scene.prepared()
    store = scene.other if elsewhere else scene.store
    assert decided(store, end_of(receipt, first, from_check=elsewhere)).won
    standing = decided(scene.store, end_of(receipt, COMMIT))
    assert (standing.decision, standing.won) == (first, False)


def test_one_that_was_decided_elsewhere_takes_nothing_of_its_batch_along(scene: Scene) -> None:
    lost, *others = [scene.prepared() for _ in range(4)]
    assert decided(scene.other, end_of(lost, ROLLBACK)).won
    ends = [end_of(each, COMMIT) for each in (*others[:2], lost, others[2])]
    receipts, standings = scene.store.halves.write([Half(scene.group, [row(scene.queue, "b")])] * 3, ends)
    assert [(answered(each).decision, answered(each).won) for each in standings] == [
        (COMMIT, True),
        (COMMIT, True),
        (ROLLBACK, False),
        (COMMIT, True),
    ]
    stored = {answered(each).txid for each in receipts}
    lying = {txid for (txid,) in scene.sql("SELECT txid FROM {s}.half")}
    assert lying == stored | {each.txid for each in (lost, *others)}
    assert decided(scene.store, end_of(answered(receipts[0]), COMMIT)).won


def test_a_receipt_is_good_for_its_own_group_and_token_alone(scene: Scene) -> None:
    receipt, others = scene.prepared(), new_group(scene.store, "others")
    for forged, error in (
        (End(receipt.txid, others, receipt.token, COMMIT), EndRefused),
        (End(receipt.txid, receipt.group, b"guess", COMMIT), UnknownTransaction),
    ):
        (answer,) = scene.store.halves.write((), [forged]).standings
        assert isinstance(answer, error)
    assert scene.decisions() == {}
    assert decided(scene.store, end_of(receipt, COMMIT)).won


def test_among_others_they_go_their_way_in_the_order_of_their_numbers(scene: Scene) -> None:
    mine = scene.prepared()
    others = [prepared(scene.other, scene.group, row(scene.queue, "a")), mine]
    answers = scene.store.halves.write((), [end_of(each, COMMIT) for each in others]).standings
    assert [answered(each).won for each in answers] == [True, True]
    assert scene.short == []


def test_a_half_that_is_due_for_its_own_check_is_looked_at(scene: Scene) -> None:
    receipt = scene.prepared(immunity=0)
    scene.sql("UPDATE {s}.half SET born = born - interval '1 hour'")
    (answer,) = scene.store.halves.write((), [end_of(receipt, COMMIT)]).standings
    assert isinstance(answer, EndRefused)
    assert (scene.short, scene.decisions()) == ([], {})


def test_another_session_knows_nothing_of_what_was_stored_before(scene: Scene) -> None:
    receipt = scene.prepared()
    with psycopg.connect(scene.store.engine.url.set(drivername="postgresql").render_as_string(False)) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    scene.sql("DELETE FROM {s}.half")  # as a store that was put back to an earlier state
    (answer,) = scene.store.halves.write((), [end_of(receipt, COMMIT)]).standings
    assert isinstance(answer, EndRefused)
    assert (scene.short, scene.decisions()) == ([], {})


def test_a_store_that_was_made_anew_under_a_session_is_not_decided_in(scene: Scene) -> None:
    receipt = scene.prepared()
    scene.sql("DELETE FROM {s}.half")
    scene.sql("UPDATE {s}.store SET uuid = gen_random_uuid()")
    (answer,) = scene.store.halves.write((), [end_of(receipt, COMMIT)]).standings
    assert isinstance(answer, TxSagaError)
    assert (scene.short, scene.decisions()) == ([], {})


@pytest.mark.rule("R13")
@pytest.mark.parametrize("parked", [True, False])
def test_one_whose_partition_was_dropped_is_not_decided_again(
    home_url: str, monkeypatch: pytest.MonkeyPatch, parked: bool
) -> None:
    monkeypatch.setattr(schema, "SPAN", SPAN)
    with closing(open_store(home_url)) as store, closing(open_store(home_url)) as other:
        past = Past(other, Stored(home_url))  # the session itself hears of nothing
        past.crowd()
        receipt = prepared(store, past.group, row(past.qid, "own"))
        assert decided(other, end_of(receipt, ROLLBACK, from_check=True)).won
        if parked:
            past.parked()  # its partition is left to it, without what is decided
        past.leave()
        assert past.drop()
        (answer,) = store.halves.write((), [end_of(receipt, COMMIT)]).standings
        assert isinstance(answer, EndRefused)
        assert (receipt.txid,) not in past.stored.rows("SELECT txid FROM op")


@pytest.mark.parametrize("evidence", [False, True])
def test_halves_that_are_alike_and_that_are_not_lie_as_they_were_given(scene: Scene, evidence: bool) -> None:
    shared = scene.store.registry.resource("books", uuid4()).id if evidence else None
    alike = [Half(scene.group, [row(scene.queue, text)], shared) for text in "abc"]
    mixed = [Half(scene.group, [row(scene.queue, text)], None, at) for at, text in enumerate("def", 7)]
    for some in (alike, mixed, [*alike, *mixed], alike[:1], mixed[:1]):
        before = len(scene.sql("SELECT FROM {s}.half"))
        receipts = [answered(each) for each in scene.store.halves.write(some, ()).receipts]
        lying = scene.sql("SELECT txid, evidence, immunity, body FROM {s}.half ORDER BY txid")[before:]
        given = [(half.evidence, half.immunity, half.rows[0].body) for half in some]
        assert [tuple(each)[1:] for each in lying] == given
        assert [each.txid for each in receipts] == [each.txid for each in lying]


def test_only_so_many_are_remembered(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves_store, "ISSUED", 2)
    receipts = [scene.prepared() for _ in range(4)]
    assert [decided(scene.store, end_of(each, COMMIT)).won for each in receipts] == [True] * 4
    assert scene.short == [each.txid for each in receipts[2:]]


DEFERRED = """CREATE FUNCTION {s}.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'at commit'; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {s}.op DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
EXECUTE FUNCTION {s}.late()"""
SWALLOWED = """CREATE FUNCTION {s}.none() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER none BEFORE INSERT ON {s}.op FOR EACH ROW EXECUTE FUNCTION {s}.none()"""


@pytest.mark.parametrize("count", [1, 2])
def test_what_goes_wrong_at_commit_is_no_decision(scene: Scene, count: int) -> None:
    receipts = [scene.prepared() for _ in range(count)]
    scene.sql(DEFERRED)
    with pytest.raises(StoreError, match="at commit"):
        scene.store.halves.write((), [end_of(each, COMMIT) for each in receipts])
    with pytest.raises(StoreError, match="at commit"):
        scene.store.halves.write([Half(scene.group, [row(scene.queue, "a")], plain=True)], ())
    assert (scene.decisions(), len(scene.sql("SELECT FROM {s}.half"))) == ({}, count)


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_left_out_is_no_decision(scene: Scene, count: int) -> None:
    receipts = [scene.prepared() for _ in range(count)]
    scene.sql(SWALLOWED)
    answers = scene.store.halves.write((), [end_of(each, COMMIT) for each in receipts]).standings
    assert [type(each) for each in answers] == [EndRefused] * count
    assert scene.decisions() == {}


class TestLone:
    """A half that comes alone: this session makes its token."""

    def test_it_has_the_token_that_the_store_gives(self, scene: Scene) -> None:
        for _ in range(2):
            receipt = scene.prepared()
            doubt = scene.other.doubts.of(receipt.txid)
            assert doubt is not None and doubt.token == receipt.token
            assert decided(scene.other, end_of(receipt, COMMIT)).won
        assert scene.stored == [scene.lone, scene.lone]

    @pytest.mark.parametrize("arrived", [True, False])
    def test_one_whose_answer_was_lost_lies_there_once(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch, arrived: bool
    ) -> None:
        scene.prepared()
        exchange, lost = LibpqSession.exchange, list[str]()

        def losing(wire: LibpqSession, calls: list[Call], **how: Any) -> Any:  # as the real one answers
            rows = exchange(wire, calls, **how) if arrived or lost else []
            if calls[0].sql == scene.lone and not lost:
                lost.append(scene.lone)
                raise psycopg.OperationalError("gone")
            return rows

        monkeypatch.setattr(LibpqSession, "exchange", losing)
        receipt = scene.prepared()
        assert (lost, len(scene.sql("SELECT FROM {s}.half"))) == ([scene.lone], 2)
        assert decided(scene.other, end_of(receipt, COMMIT)).won

    def test_whoever_sees_the_pads_sees_nothing(self, scene: Scene) -> None:
        scene.prepared()
        with scene.store.halves._sessions.taken() as session:
            assert repr(session._pads) == "Pads()"

    def test_it_is_refused_while_the_store_rejects(self, scene: Scene) -> None:
        scene.prepared()
        scene.sql("UPDATE {s}.store SET rejecting = true")
        (answer,) = scene.store.halves.write([Half(scene.group, [row(scene.queue, "a")])], ()).receipts
        assert isinstance(answer, TransactionsRejected)
        assert len(scene.sql("SELECT FROM {s}.half")) == 1

    def test_a_store_that_became_another_under_its_session_makes_the_token_itself(self, scene: Scene) -> None:
        scene.prepared()
        scene.sql("UPDATE {s}.store SET incarnation = incarnation + 1, token_inner = token_inner || 'more'")
        receipt = scene.prepared()
        doubt = scene.store.doubts.of(receipt.txid)
        assert doubt is not None and doubt.token == receipt.token
        assert decided(scene.store, end_of(receipt, COMMIT)).won
        assert (scene.short, len(scene.sql("SELECT FROM {s}.half"))) == ([], 2)
        assert scene.stored == [scene.lone, scene.lone, scene.general]
