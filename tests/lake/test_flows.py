"""The steps of a flow write into tables from many processes; its end publishes all of it, or nothing."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.lake.books import COLUMNS, LEDGER, MONDAY, POSTING, Books, rows
from txsaga.errors import NotCarried, Superseded, TableMoved, TransactionError
from txsaga.flows.ballot import Ballot, CastVote, Rule
from txsaga.lake.gates import Subject

pytestmark = [pytest.mark.postgres, pytest.mark.req("CARD-03")]

Open = Callable[..., Books]


class Opinion:
    """A gate that says what it is told to."""

    def __init__(self, *, yes: bool, rule: Rule = Rule.ALL) -> None:
        self.yes, self.rule = yes, rule
        self.seen: list[Subject] = []

    def warm(self) -> None:
        """Nothing takes long."""

    def ballot(self, name: str) -> Ballot:
        return Ballot(name=name, voters=("opinion",), rule=self.rule)

    def judge(self, subject: Subject) -> list[CastVote]:
        self.seen.append(subject)
        return [CastVote(voter="opinion", yes=self.yes, evidence={} if self.yes else {"why": "I don't like it"})]


def begin(books: Books, key: str = "night") -> int:
    return books.producer.begin_flow(key=key).txid


def test_steps_in_two_processes_are_published_together(open_books: Open) -> None:
    one, other = open_books(), open_books()
    one.create(LEDGER)
    txid, gate = begin(one), Opinion(yes=True)
    with one.broker.flow(txid) as flow, flow.step("ledger"):
        flow.table(LEDGER).append(rows(1, 2), gate=gate)
    with other.broker.flow(txid) as flow, flow.step("postings"):
        flow.table(POSTING).create(COLUMNS).append(rows(3))
        flow.send("booked", b"1")
    with one.broker.flow(txid) as flow, flow.step("more"):
        flow.table(POSTING).append(rows(4))
    assert one.ids() == [] and not one.is_there(POSTING)
    with other.broker.flow(txid) as flow:
        flow.end()
    assert one.ids() == [1, 2] and one.ids(POSTING) == [3, 4]
    (poll,) = one.broker.ballots(txid)
    assert poll.casts[0].yes and gate.seen[0].count == 2 and len(gate.seen[0].files) == 1


def test_of_a_step_that_was_tried_twice_one_attempt_is_published(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    txid = begin(books)
    with pytest.raises(ZeroDivisionError), books.broker.flow(txid) as flow, flow.step("ledger"):
        flow.table(LEDGER).append(rows(1))
        _ = 1 // 0
    with books.broker.flow(txid) as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).append(rows(2))
        flow.end()
    assert books.ids() == [2]


def test_the_no_of_a_gate_is_the_flows_whatever_is_tried_again(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    txid = begin(books)
    with books.broker.flow(txid) as flow:
        with pytest.raises(NotCarried, match="opinion: I don't like it"), flow.step("ledger"):
            flow.table(LEDGER).append(rows(1), gate=Opinion(yes=False))
        with flow.step("ledger"):
            flow.table(LEDGER).append(rows(2), gate=Opinion(yes=True))
        with pytest.raises(NotCarried):
            flow.end()
    assert books.ids() == []


@pytest.mark.rule("R4")
def test_the_no_of_a_gate_in_an_attempt_whose_place_was_taken_is_nobodys(open_books: Open) -> None:
    late, books = open_books(), open_books()
    books.create(LEDGER)
    txid = begin(books)
    with books.broker.flow(txid) as flow:
        with late.broker.flow(txid) as slow, pytest.raises(Superseded), slow.step("ledger"):
            table = slow.table(LEDGER)
            with flow.step("ledger"):
                flow.table(LEDGER).append(rows(2), gate=Opinion(yes=True))
            table.append(rows(1), gate=Opinion(yes=False))
        flow.end()
    assert books.ids() == [2]


def test_a_warning_does_not_stop_a_flow(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    txid = begin(books)
    with books.broker.flow(txid) as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).append(rows(1), gate=Opinion(yes=False, rule=Rule.WARN))
            flow.check("anything", [{"id": 1}], Opinion(yes=True))
        flow.end()
    assert books.ids() == [1]
    assert len(books.broker.ballots(txid)) == 2


def test_a_flow_that_rolls_back_publishes_nothing(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    txid = begin(books)
    with books.broker.flow(txid) as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).append(rows(1))
        flow.roll_back()
    assert books.ids() == []
    assert books.lake.collect()


def test_an_overwrite_of_what_moved_rolls_the_flow_back(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    books.append(1)
    txid = begin(books)
    with books.broker.flow(txid) as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).overwrite(rows(2), where={"day": MONDAY})
        books.append(3)
        with pytest.raises(TableMoved):
            flow.end()
    assert books.ids() == [1, 3]


def test_tables_are_written_in_steps(open_books: Open) -> None:
    books = open_books()
    txid = begin(books)
    with books.broker.flow(txid) as flow, pytest.raises(TransactionError, match=r"with flow\.step"):
        flow.table(LEDGER)


def test_what_a_gate_refused_is_kept_for_a_while(open_books: Open) -> None:
    books = open_books()
    books.create(LEDGER)
    with pytest.raises(NotCarried), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1), gate=Opinion(yes=False))
    with pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(2), gate=Opinion(yes=True))
        _ = 1 // 0
    assert len(books.lake.collect(dry_run=True)) == 4
    assert len(books.lake.collect(keep_rejected=timedelta(days=7))) == 2
    assert len(books.lake.collect()) == 2


@pytest.mark.rule("R4")
def test_what_a_forgotten_attempt_still_writes_is_published_by_nobody(open_books: Open) -> None:
    lost, found = open_books(), open_books()
    lost.create(LEDGER)
    txid = begin(lost)
    with lost.broker.flow(txid) as zombie, found.broker.flow(txid) as flow:
        with pytest.raises(Superseded), zombie.step("ledger"):
            zombie.table(LEDGER).append(rows(1), gate=Opinion(yes=True))
            with flow.step("ledger"):
                flow.table(LEDGER).append(rows(2))
            zombie.table(LEDGER).append(rows(3))
        flow.end()
    assert found.ids() == [2]
    assert list(found.broker.ballots(txid)) == []


def test_a_gate_looks_at_what_steps_before_it_have_staged(open_books: Open) -> None:
    one, other = open_books(), open_books()
    txid, gate = begin(one), Opinion(yes=True)
    with one.broker.flow(txid) as flow:
        with flow.step("ledger"):
            flow.table(LEDGER).create(COLUMNS).append(rows(1, 2))
        with flow.step("more"):
            flow.table(LEDGER).append(rows(3))
    with other.broker.flow(txid) as flow:
        with flow.step("check"):
            assert flow.check_staged(LEDGER, gate).casts[0].yes
        flow.end()
    (seen,) = gate.seen
    assert seen.table is not None and seen.table.schema().column_names == [*COLUMNS]
    assert (seen.count, len(seen.files)) == (3, 2)
    assert one.ids() == [1, 2, 3]
