"""What no store could take is refused where it is read, in one line: it reaches no batch, and harms no neighbour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tests.scene.shop import NEWS, ORDERS, Shop
from txsaga import Callables, Decision, TxSagaError
from txsaga.core.records import Receipt
from txsaga.errors import ConfigError, InvalidMessage

pytestmark = pytest.mark.core

HALVES: dict[str, Callable[[Receipt], Any]] = {
    "a text": lambda _: "x",
    "nothing": lambda _: None,
    "a plain tuple": tuple,
    "no token": lambda half: half._replace(token=None),  # type: ignore[arg-type]
    "a token that is text": lambda half: half._replace(token="x"),  # type: ignore[arg-type]
    "a token that is long": lambda half: half._replace(token=b"x" * 1000),
    "no number": lambda half: half._replace(txid=None),  # type: ignore[arg-type]
    "a number that is text": lambda half: half._replace(txid="7"),  # type: ignore[arg-type]
    "a number beyond all": lambda half: half._replace(txid=2**70),
    "a number below all": lambda half: half._replace(txid=-(2**70)),
    "a group that is a list": lambda half: half._replace(group=[]),  # type: ignore[arg-type]
}
ENDS: dict[str, Callable[[Any, Any], object]] = {
    "commit": lambda producer, half: producer.commit(half),
    "roll_back": lambda producer, half: producer.roll_back(half),
    "recall": lambda producer, half: producer.recall(half),
    "decide": lambda producer, half: producer.decide(half, Decision.COMMIT),
}
A_HALF = "not a receipt|this receipt has an invalid"


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("wrong", HALVES.values(), ids=HALVES)
def test_a_receipt_that_is_none_is_refused(
    moody_shop: Shop, wrong: Callable[[Receipt], object], end: Callable[[Any, Any], object]
) -> None:
    producer = moody_shop.producer()
    half = producer.prepare_now(ORDERS, b"a chair")
    with pytest.raises(InvalidMessage, match=A_HALF) as refusal:
        end(producer, wrong(half))
    assert "\n" not in str(refusal.value)
    assert moody_shop.pending() == [half.txid]


def test_a_wrong_receipt_harms_no_neighbour_in_a_batch(shop: Shop) -> None:
    producer, wrong = shop.producer(), list(HALVES.values())
    halves = [producer.prepare(ORDERS, b"%d" % at).result(10) for at in range(len(wrong) * 4)]

    def end(at: int) -> None:
        with pytest.raises(InvalidMessage, match=A_HALF):
            producer.commit(wrong[at % len(wrong)](halves[at]))
        producer.commit(halves[at])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(end, range(len(halves))))
    assert (len(shop.bodies()), shop.pending()) == (len(halves), [])


class Scene:
    """What a program has at hand; nothing of it has a type, as in the programs that make mistakes."""

    def __init__(self, shop: Shop) -> None:
        self.broker: Any = shop.broker
        self.broker.enlist("cash", Callables(try_=print, confirm=print, cancel=print))
        self.producer: Any = shop.producer()
        self.flow: Any = self.producer.begin_flow("cash", key="flow")
        self.broker.producer("press").send(NEWS, b"x")
        shop.deliver()
        self.consumer: Any = shop.broker.consumer("workers", [NEWS])
        (message,) = self.consumer.receive()
        self.delivered: Any = message.delivered

    @contextmanager
    def saga(self) -> Iterator[Any]:
        with self.producer.saga() as saga:
            yield saga


def in_saga(**said: object) -> Callable[[Scene], object]:
    def run(scene: Scene) -> None:
        with scene.saga() as saga:
            saga.step(**{"do": lambda **_: None, **said})

    return run


def checked(gate: object) -> Callable[[Scene], object]:
    def run(scene: Scene) -> None:
        with scene.producer.transaction() as tx:
            tx.check("news", [], gate)

    return run


NUL, HALF_A_LETTER = "a\0b", "\ud800"
CALLS: dict[str, Callable[[Scene], object]] = {
    "ack nothing": lambda s: s.consumer.ack(None),
    "ack one": lambda s: s.consumer.ack(s.delivered),
    "ack delivered": lambda s: s.consumer.ack([s.delivered]),
    "ack None": lambda s: s.consumer.ack([None]),
    "receive for less than no time": lambda s: s.consumer.receive(patience=-1),
    "receive for x": lambda s: s.consumer.receive(patience="x"),
    "start before the start": lambda s: s.broker.stream("g", [NEWS], start=-1),
    "work before the start": lambda s: s.broker.consumer("g", [NEWS], start=-(2**70)),
    "a reader's tag with a NUL": lambda s: s.broker.stream("g", [NEWS], tag=NUL),
    "a worker's tag with a NUL": lambda s: s.broker.consumer("g", [NEWS], tag=NUL),
    "half a letter as a tag": lambda s: s.broker.consumer("g", [NEWS], tag=HALF_A_LETTER),
    "an expression of tags": lambda s: s.broker.stream("g", [NEWS], tag="a || "),
    "an endless tag": lambda s: s.broker.stream("g", [NEWS], tag="a" * 256),
    "a run with a NUL": lambda s: s.producer.transaction(run=NUL),
    "a run of 5": lambda s: s.producer.coordinated("cash", run=5),
    "a flow's run": lambda s: s.producer.begin_flow("cash", key="f", run=HALF_A_LETTER),
    "a saga's run": lambda s: s.broker.saga("travel", run=NUL),
    "lanes that are 5": lambda s: s.producer.begin_flow("cash", key="f", lanes=5),
    "a lane that is a list": lambda s: s.producer.begin_flow("cash", key="f", lanes=[[]]),
    "a resource that is a list": lambda s: s.producer.begin_flow([], key="f"),
    "no lease": lambda s: s.producer.begin_flow("cash", key="f", lease=timedelta(0)),
    "an amendment with a NUL": lambda s: s.producer.begin_flow("cash", key="f", amend=NUL),
    "a step with a NUL": lambda s: s.flow.step(NUL),
    "a step on a list": lambda s: s.flow.step("s", on=[]),
    "a call with a NUL": lambda s: s.flow.call(NUL, lambda: None),
    "a call with an input by number": lambda s: s.flow.call("c", lambda: None, input={1: 2}),
    "done 5": lambda s: s.flow.is_done(5),
    "attempt None": lambda s: s.flow.attempt(None),
    "a lane of a list": lambda s: s.flow.lane([]),
    "handled 5": lambda s: s.flow.end(handled=5),
    "roll back for 5": lambda s: s.flow.roll_back(5),
    "a saga's step on 5": in_saga(on=5),
    "a saga's step by half a letter": in_saga(name=HALF_A_LETTER),
    "a saga's input by number": in_saga(input={1: 2}),
    "no gate": checked(None),
    "exhausted 5": lambda s: s.broker.when_exhausted(5, print),
    "answer for a NUL": lambda s: s.broker.answer_for(NUL, print),
    "checks of a list": lambda s: s.broker.set_checks([], max_checks=3),
    "alter 5": lambda s: s.broker.alter_group(5, max_attempts=3),
    "delete 5": lambda s: s.broker.delete_group(5),
    "reset a NUL": lambda s: s.broker.reset_group(NUL, "latest"),
    "reset in 5": lambda s: s.broker.reset_group("workers", "latest", topic=5),
    "leave by 5": lambda s: s.broker.leave_topic(5, NEWS),
    "leave None": lambda s: s.broker.leave_topic("workers", None),
    "replay for None": lambda s: s.broker.replay(1, why=None),
    "replay by a NUL": lambda s: s.broker.replay(1, who=NUL),
    "letters of a NUL": lambda s: s.broker.dead_letters.list(NUL),
    "pages of half a letter": lambda s: list(s.broker.dead_letters.pages(HALF_A_LETTER)),
    "a resource without a name": lambda s: s.broker.register([], None),
    "a participant without a name": lambda s: s.broker.enlist({}, None),
}


def test_what_no_store_could_take_is_refused_where_it_is_read(shop: Shop) -> None:
    scene = Scene(shop)
    before = shop.listed()
    assert {name: told(call, scene) for name, call in CALLS.items()} == dict.fromkeys(CALLS, "one line")
    assert shop.listed() == before


def told(call: Callable[[Scene], object], scene: Scene) -> str:
    try:
        call(scene)
    except (ConfigError, InvalidMessage) as refusal:
        return str(refusal) if "\n" in str(refusal) else "one line"
    except Exception as other:  # noqa: BLE001  # told in the comparison
        return f"{'an error of ours: ' if isinstance(other, TxSagaError) else ''}{other!r}"
    return "nothing"


def test_pages_may_be_as_long_as_anybody_says(shop: Shop) -> None:
    assert list(shop.producer().recover(page=2**70)) == []
