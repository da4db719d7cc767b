"""Ends of halves: the first decision is final, and a half decides only for its own group, token, store and time."""

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
from txsaga.errors import EndRefused, StoreError, TxSagaError, UnknownTransaction
from txsaga.store import partitions
from txsaga.store.connection import transaction
from txsaga.store.pipeline import LibpqSession
from txsaga.store.statement import StatementCall
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R14")]


class Scene:
    """A store, and another one on the same home."""

    def __init__(self, url: str) -> None:
        self.store, self.other = open_store(url), open_store(url)
        self.group, (self.queue,) = new_group(self.store), new_queues(self.store)

    def prepared(self, **how: Any) -> Receipt:  # as a half takes it
        return answered(self.store.halves.write([Half(self.group, [row(self.queue, "a")], **how)], ()).receipts[0])

    def decisions(self) -> dict[int, Decision]:
        return {txid: Decision(made) for txid, made in self.sql("SELECT txid, decision FROM {s}.op")}

    def sql(self, statement: str) -> Sequence[Any]:
        with transaction(self.store.engine) as connection:
            done = connection.execute(text(statement.format(s=self.store.namespace)))
            return done.all() if done.returns_rows else []


@pytest.fixture
def scene(home_url: str) -> Iterator[Scene]:
    made = Scene(home_url)
    yield made
    made.store.close()
    made.other.close()


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("count", [1, 3])
def test_halves_are_decided_one_by_one_and_together(scene: Scene, decision: Decision, count: int) -> None:
    receipts = [scene.prepared() for _ in range(count)]
    answers = scene.store.halves.write((), [end_of(each, decision) for each in receipts]).standings
    assert [answered(each).won for each in answers] == [True] * count
    assert scene.decisions() == {each.txid: decision for each in receipts}


def test_a_half_is_decided_by_another_process_of_its_group(scene: Scene) -> None:
    receipt = prepared(scene.other, scene.group, row(scene.queue, "a"))
    assert decided(scene.store, end_of(receipt, COMMIT)).won


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


def test_halves_of_two_sessions_are_decided_together(scene: Scene) -> None:
    mine = scene.prepared()
    others = [prepared(scene.other, scene.group, row(scene.queue, "a")), mine]
    answers = scene.store.halves.write((), [end_of(each, COMMIT) for each in others]).standings
    assert [answered(each).won for each in answers] == [True, True]


def test_a_half_whose_immunity_is_over_is_left_to_its_check(scene: Scene) -> None:
    receipt = scene.prepared(immunity=0)
    scene.sql("UPDATE {s}.half SET born = born - interval '1 hour'")
    (answer,) = scene.store.halves.write((), [end_of(receipt, COMMIT)]).standings
    assert isinstance(answer, EndRefused)
    assert scene.decisions() == {}


def test_another_session_knows_nothing_of_what_was_stored_before(scene: Scene) -> None:
    receipt = scene.prepared()
    with psycopg.connect(scene.store.engine.url.set(drivername="postgresql").render_as_string(False)) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    scene.sql("DELETE FROM {s}.half")  # as a store that was put back to an earlier state
    (answer,) = scene.store.halves.write((), [end_of(receipt, COMMIT)]).standings
    assert isinstance(answer, EndRefused)
    assert scene.decisions() == {}


def test_a_store_that_was_made_anew_under_a_session_is_not_decided_in(scene: Scene) -> None:
    receipt = scene.prepared()
    scene.sql("DELETE FROM {s}.half")
    scene.sql("UPDATE {s}.store SET uuid = gen_random_uuid()")
    (answer,) = scene.store.halves.write((), [end_of(receipt, COMMIT)]).standings
    assert isinstance(answer, TxSagaError)
    assert scene.decisions() == {}


@pytest.mark.rule("R13")
@pytest.mark.parametrize("parked", [True, False])
def test_one_whose_partition_was_dropped_is_not_decided_again(
    home_url: str, monkeypatch: pytest.MonkeyPatch, parked: bool
) -> None:
    monkeypatch.setattr(partitions, "SPAN", SPAN)
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


@pytest.mark.parametrize("arrived", [True, False])
def test_one_whose_answer_was_lost_is_stored_once(scene: Scene, monkeypatch: pytest.MonkeyPatch, arrived: bool) -> None:
    scene.prepared()
    exchange, lost = LibpqSession.exchange, list[str]()

    def losing(wire: LibpqSession, calls: list[StatementCall]) -> Any:  # as the real one answers
        rows = exchange(wire, calls) if arrived or lost else []
        if not lost:
            lost.append(calls[0].sql)
            raise psycopg.OperationalError("gone")
        return rows

    monkeypatch.setattr(LibpqSession, "exchange", losing)
    receipt = scene.prepared()
    assert len(scene.sql("SELECT FROM {s}.half")) == 2
    assert decided(scene.other, end_of(receipt, COMMIT)).won
