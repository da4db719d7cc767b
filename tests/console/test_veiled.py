"""What may quote a user's data is for operators: the texts of exceptions, wherever they are kept."""

from __future__ import annotations

import pytest

from tests.console.conftest import Enter
from tests.scene.shop import Shop
from txsaga.console import reading
from txsaga.console.people import Rank

SECRET = "card 4711 of ann"


def seen(enter: Enter, *paths: str) -> list[Rank]:
    """Return the roles to which one of these shows the secret."""
    texts = {role: "".join(enter(role).get(path).text for path in paths) for role in Rank}
    return [role for role, text in texts.items() if SECRET in text]


OPERATORS = [Rank.OPERATOR, Rank.ADMIN]


def everywhere(txid: object) -> tuple[str, ...]:
    places = (f"/transactions/{txid}", "/audit")
    return (*places, *(f"/api/v1{place}" for place in places))


def test_why_a_step_failed_is_for_operators(shop: Shop, enter: Enter) -> None:
    with pytest.raises(ValueError), shop.broker.saga("travel", key="trip") as saga:
        saga.step(fails, name="book", input={})
    assert seen(enter, *everywhere(saga.txid)) == OPERATORS


def fails() -> None:
    raise ValueError(SECRET)


def test_why_a_checker_failed_is_for_operators(shop: Shop, enter: Enter) -> None:
    def checker(*_: object) -> None:
        raise ValueError(SECRET)

    shop.producer(checker=checker)
    receipt = shop.mq_producer(checker=checker).prepare_now("orders", b"a")
    shop.check()
    assert seen(enter, *everywhere(receipt.txid)) == OPERATORS
    shop.check(most=1)
    assert seen(enter, *everywhere(receipt.txid)) == OPERATORS


def test_why_a_letter_was_given_up_is_for_operators(shop: Shop, enter: Enter) -> None:
    shop.broker.create_group("billing", max_attempts=1)
    shop.producer().send("news", b"broken")
    shop.deliver()
    (message,) = shop.broker.consumer("billing", ["news"]).receive()
    message.nack(cause=SECRET)
    assert seen(enter, "/letters", "/api/v1/letters", "/api/v1/letters/1") == OPERATORS


def test_letters_are_read_page_by_page(shop: Shop, enter: Enter) -> None:
    shop.broker.create_group("billing", max_attempts=1)
    for number in range(5):
        shop.producer().send("news", str(number).encode())
    shop.deliver()
    consumer = shop.broker.consumer("billing", ["news"])
    while messages := consumer.receive(5):
        for message in messages:
            message.nack(cause="no")
    found, before = list[int](), None
    while True:
        page = reading.letters(shop.store, "billing", before, bodies=False, limit=2)
        found += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        before = str(page["next"])
    assert (len(found), found) == (5, sorted(found, reverse=True))
    assert enter(Rank.VIEWER).get(f"/api/v1/letters?before={found[-1]}").json() == {"items": [], "next": None}
    assert enter(Rank.VIEWER).get("/letters?before=x").status_code == 400


def test_the_reason_of_a_person_is_for_all(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    act = {"id": str(receipt.txid), "reason": SECRET}
    assert enter(Rank.OPERATOR).post("/api/v1/acts/commit", json=act).status_code == 200
    assert seen(enter, *everywhere(receipt.txid)) == [Rank.VIEWER, Rank.OPERATOR, Rank.ADMIN]


def test_a_refused_act_is_recorded_with_its_transaction(shop: Shop, enter: Enter) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    shop.producer().commit(receipt)
    client = enter(Rank.OPERATOR)
    for id, status in ((str(receipt.txid), 409), ("999999", 404), ("no\0thing", 404)):
        refused = client.post("/api/v1/acts/rollback", json={"id": id, "reason": "too late"})
        assert refused.status_code == status
    rows = [each for each in client.get("/api/v1/audit").json()["items"] if each["what"].startswith("REFUSED")]
    assert [(each["txid"], each["what"]) for each in rows] == [
        (0, "REFUSED: ROLLBACK no?thing"),
        (0, "REFUSED: ROLLBACK 999999"),
        (receipt.txid, f"REFUSED: ROLLBACK {receipt.txid}"),
    ]
    assert all(each["why"].startswith("too late (refused: ") for each in rows)
    assert rows[0]["who"] == "operator@console"
    assert f"REFUSED: ROLLBACK {receipt.txid}" in client.get(f"/transactions/{receipt.txid}").text
