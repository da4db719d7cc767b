"""The timeline of a transaction, as people see it: files hold each one line by line."""

from __future__ import annotations

import pytest

from tests.cli.stories import FILES, STORIES, scene, told


@pytest.mark.req("IBM-42")
@pytest.mark.parametrize("name", STORIES)
def test_a_transaction_is_told_as_its_file_has_it(name: str) -> None:
    assert told(STORIES[name]) == (FILES / f"{name}.txt").read_text("utf-8")


def test_every_file_has_its_story() -> None:
    assert {path.stem for path in FILES.iterdir()} == set(STORIES)


def test_what_nobody_decided_holds_undo_data_and_what_is_decided_none() -> None:
    with scene() as opened:
        receipt = opened.producer.prepare_now("orders", b"a chair")
        before = [step.kind.holds for step in opened.steps(receipt.txid)]
        opened.producer.commit(receipt)
        opened.deliver()
        after = [step.kind.holds for step in opened.steps(receipt.txid)]
    assert (before[-1], after[-1]) == (True, False)


def test_a_look_at_the_evidence_fences_nothing() -> None:
    with scene() as opened:
        tx = opened.producer.transaction()
        tx.__enter__()
        tx.send("orders", b"a chair")
        with tx.local("billing"):
            assert tx.txid is not None
            # SQLite lets nobody read what is being written; another engine would find nothing either.
            (work,) = [step for step in opened.steps(tx.txid) if step.lane == "billing"]
            assert (work.kind.mark, work.why) == ("=", "it was not checked whether it committed")
        (work,) = [step for step in opened.steps(tx.txid, evidence=True) if step.lane == "billing"]
        assert (work.kind.mark, work.why) == ("x", "the evidence row exists")
