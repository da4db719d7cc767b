"""A suite votes on what is staged: its yes lets it be published, its no rolls all of it back."""

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from tests.gate.conftest import IDS, NOTES
from tests.lake.books import LEDGER, MONDAY, POSTING, Books, rows
from txsaga.core.message import Message
from txsaga.errors import ConfigError, NotCarried, UnknownSuite
from txsaga.flows.ballot import Polled
from txsaga.gate import every, expect, quorum, report
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(120)]

Save = Callable[..., str]


def polls(books: Books, tx: Transaction) -> list[Polled]:
    assert tx.txid is not None
    return list(books.broker.ballots(tx.txid))


@pytest.mark.req("CARD-08")
def test_rows_that_hold_are_published_and_the_result_is_kept_with_the_decision(ledger: Books, suite: Save) -> None:
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1, 2), gate=expect(suite("ledger", IDS, NOTES)))
        assert ledger.ids() == []
    assert ledger.ids() == [1, 2]
    (poll,) = polls(ledger, tx)
    (cast,) = poll.casts
    assert (cast.voter, cast.yes, cast.evidence["rows"], cast.evidence["engine"]) == ("ledger", True, 2, "pandas")
    results = cast.evidence["results"]
    assert isinstance(results, list) and [each["success"] for each in results] == [True, True]


@pytest.mark.req("CARD-08")
def test_rows_that_fail_roll_back_everything_with_one_line_that_says_why(ledger: Books, suite: Save) -> None:
    ledger.create(POSTING)
    gate = expect(suite("ledger", IDS, NOTES))
    with pytest.raises(NotCarried, match=r"expect_column_values_to_be_unique of id: 2 of 3 rows, like 7, 7"):
        with ledger.producer.transaction() as tx:
            tx.table(POSTING).append(rows(1))
            tx.send("booked", b"1")
            tx.table(LEDGER).append(rows(7, 7, 8), gate=gate)
    assert ledger.ids() == [] and ledger.ids(POSTING) == []
    (poll,) = polls(ledger, tx)
    assert not poll.casts[0].yes
    page = report(ledger.broker, tx.txid or 0)
    assert "expect_column_values_to_be_unique" in page and "2 of 3 rows" in page
    assert "http" not in page and "<script" not in page


def test_a_no_stands_though_somebody_drops_its_error(ledger: Books, suite: Save) -> None:
    gate = expect(suite("ledger", IDS))
    with pytest.raises(NotCarried):
        with ledger.producer.transaction() as tx:
            with suppress(NotCarried):
                tx.table(LEDGER).append(rows(7, 7), gate=gate)
            tx.table(LEDGER).append(rows(8))
    assert ledger.ids() == []


def test_a_warning_is_told_and_does_not_stop_anything(ledger: Books, suite: Save) -> None:
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(7, 7), gate=expect(suite("ledger", IDS), warn=True))
    assert ledger.ids() == [7, 7]
    (poll,) = polls(ledger, tx)
    assert poll.missing == ("ledger",)


def test_an_expectation_that_only_warns_is_told(ledger: Books) -> None:
    gate = expect([NOTES, {**IDS, "severity": "warning"}])
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(7, 7), gate=gate)
    (cast,) = polls(ledger, tx)[0].casts
    results = cast.evidence["results"]
    assert cast.yes and isinstance(results, list) and [each["success"] for each in results] == [True, False]


def test_a_quorum_needs_so_many_and_every_needs_all(ledger: Books, suite: Save) -> None:
    good, bad = expect(suite("good", NOTES)), expect(suite("bad", IDS))
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(7, 7), gate=quorum(1, good, bad))
    with pytest.raises(NotCarried, match="bad: expect_column"), ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(8, 8), gate=every(good, bad))
    assert ledger.ids() == [7, 7]


def test_far_more_rows_than_before_are_refused(ledger: Books) -> None:
    ledger.append(1, 2)
    gate = expect([NOTES], drift=0.5)
    with pytest.raises(NotCarried, match="4 rows in the place of 2: more than 50% apart"):
        with ledger.producer.transaction() as tx:
            tx.table(LEDGER).append(rows(3, 4, 5, 6), gate=gate)
    with ledger.producer.transaction() as tx:
        tx.table(LEDGER).overwrite(rows(3, 4, 5), where={"day": MONDAY}, gate=gate)
    assert ledger.ids() == [3, 4, 5]


NO = {
    "a missing column": (
        [{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "missing"}}],
        r"the rows have no column 'missing', only id, day, amount, note",
    ),
    "an unknown expectation": (
        [{"type": "expect_the_best", "kwargs": {"column": "id"}}],
        r"expect_the_best",
    ),
    "a kwarg that is missing": (
        [{"type": "expect_column_values_to_be_in_set", "kwargs": {}}],
        r"ValidationError: 2 validation errors for ExpectColumnValuesToBeInSet column",
    ),
}


@pytest.mark.parametrize("case", NO)
def test_a_gate_that_can_not_judge_says_no_in_one_line(ledger: Books, case: str) -> None:
    expectations, told = NO[case]
    with pytest.raises(NotCarried, match=told) as refused, ledger.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1), gate=expect(expectations))
    assert len(str(refused.value).splitlines()) == 1
    assert polls(ledger, tx)[0].casts[0].evidence["error"]


def test_nothing_to_look_at_is_a_no_unless_it_is_allowed(ledger: Books) -> None:
    with pytest.raises(NotCarried, match="no rows to check; pass allow_empty=True"):
        with ledger.producer.transaction() as tx:
            tx.table(LEDGER).append(rows(), gate=expect([IDS]))
    with ledger.producer.transaction() as tx:
        assert tx.table(LEDGER).append(rows(), gate=expect([IDS], allow_empty=True)) is None


def test_an_unknown_suite_is_told_before_anything_is_staged(ledger: Books, suite: Save) -> None:
    suite("ledger", IDS)
    with pytest.raises(UnknownSuite, match=r"suite 'ledgr' is not in .*there are ledger"):
        with ledger.producer.transaction() as tx:
            tx.table(LEDGER).append("not even rows", gate=expect("ledgr"))


def test_a_gate_judges_messages_and_rows_too(ledger: Books) -> None:
    unique = [{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "account"}}]
    good = [Message("booked", b'{"account": 1}'), Message("booked", b'{"account": 2}')]
    with ledger.producer.transaction() as tx:
        for each in good:
            tx.send(each)
        tx.check("booked", good, expect(unique))
        tx.check("rows", [{"account": 1}, {"account": 3}], expect(unique))
        tx.check("a frame", pa.table({"account": [1, 2]}).to_pandas(), expect(unique))
    assert len(polls(ledger, tx)) == 3
    with pytest.raises(NotCarried, match="unique of account: 2 of 2 rows"), ledger.producer.transaction() as tx:
        tx.check("booked", [good[0], good[0]], expect(unique))


def test_a_coordinated_transaction_has_gates_too(ledger: Books, foreign_databases: Callable[[], str]) -> None:
    till = create_engine(foreign_databases())
    ledger.broker.register("till", till)
    with pytest.raises(NotCarried), ledger.producer.coordinated("till") as tx:
        tx.on("till").__enter__().execute(text("CREATE TABLE note (id int)"))
        tx.table(LEDGER).append(rows(1, 1), gate=expect([IDS]))
    with ledger.producer.coordinated("till") as tx:
        held = tx.on("till").__enter__()
        held.execute(text("CREATE TABLE note (id int)"))
        held.execute(text("INSERT INTO note VALUES (1), (2)"))
        tx.check("note", held.execute(text("SELECT id FROM note")).all(), expect([IDS]))
        tx.table(LEDGER).append(rows(1), gate=expect([IDS]))
    assert ledger.ids() == [1]
    till.dispose()


BAD: dict[str, Callable[[], object]] = {
    "no expectations": lambda: expect([]),
    "one without a type": lambda: expect([{"kwargs": {}}]),
    "a drift below zero": lambda: expect("a", drift=-1),
    "no time": lambda: expect("a", timeout=0),
    "an engine that nobody has": lambda: expect("a", engine="duck"),
    "a quorum of more than there are": lambda: quorum(3, expect("a"), expect("b")),
    "two of one name": lambda: every(expect("a"), expect("a")),
}


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_gate_is_refused_at_once(case: str) -> None:
    with pytest.raises(ConfigError):
        BAD[case]()
