"""A reader whose store goes away finds back; what was answered by nobody is done once."""

from collections import deque
from collections.abc import Callable

import pytest

from tests.scene.shop import NEWS, Shop
from txsaga.core.retry import patiently
from txsaga.errors import NotPrimary, OutcomeUnknown, StoreError, StoreUnavailable

AWAY, UNANSWERED = StoreUnavailable("the server is away"), OutcomeUnknown("no answer to COMMIT")


def failing(call: Callable[..., object], *errors: StoreError, after: bool = False) -> Callable[..., object]:
    """Let the first calls fail, before they do anything or after they did it."""
    left = deque(errors)

    def wrapped(*args: object) -> object:
        if left and not after:
            raise left.popleft()
        answer = call(*args)
        if left:
            raise left.popleft()
        return answer

    return wrapped


@pytest.mark.parametrize("error", [AWAY, UNANSWERED])
def test_a_step_is_tried_until_the_store_is_back(error: StoreError) -> None:
    assert patiently(failing(lambda: "done", error, error)) == "done"


def test_patience_ends() -> None:
    with pytest.raises(StoreUnavailable, match="away"):
        patiently(failing(lambda: "done", *[AWAY] * 100), patience=0.2)


def test_what_time_does_not_heal_is_told_at_once() -> None:
    with pytest.raises(NotPrimary):
        patiently(failing(lambda: "done", NotPrimary("a standby")))


@pytest.mark.parametrize(
    ("part", "method"),
    [("log", "fetch"), ("log", "bounds"), ("queues", "renew"), ("queues", "intent_on"), ("queues", "acquire")],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_reader_goes_on_when_the_store_is_back(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, part: str, method: str, after: bool
) -> None:
    for body in (b"1", b"2"):
        moody_shop.broker.producer("news").send(NEWS, body)
    moody_shop.deliver()
    stream = moody_shop.broker.stream("readers", [NEWS], member="anna")
    store = getattr(moody_shop.store, part)
    monkeypatch.setattr(store, method, failing(getattr(store, method), AWAY, UNANSWERED, after=after))
    assert [message.text() for message in stream.messages(wait=0)] == ["1", "2"]


@pytest.mark.rule("R14")
@pytest.mark.parametrize("after", [False, True])
def test_a_commit_without_an_answer_is_made_once(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    for body in (b"1", b"2"):
        moody_shop.broker.producer("news").send(NEWS, body)
    moody_shop.deliver()
    stream = moody_shop.broker.stream("readers", [NEWS], member="anna")
    batch = stream.poll()
    assert batch is not None
    queues = moody_shop.store.queues
    monkeypatch.setattr(queues, "advance", failing(queues.advance, UNANSWERED, after=after))
    stream.commit(batch)
    assert [message.text() for message in stream.messages(wait=0)] == ["2"]
