"""Errors come out of another process as they were raised there."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from inspect import signature
from multiprocessing import get_context

import pytest

from tests.errors.tree import every_error
from txsaga.errors import OwnLock, TxSagaError

KINDS = sorted({*every_error()}, key=lambda kind: (kind.__module__, kind.__name__))
SAMPLES = {"Sequence[str]": ["one", "two"], "int": 7, "float": 1.5}


def made(kind: type[TxSagaError]) -> TxSagaError:
    if kind.__init__ is Exception.__init__:
        return kind("what happened")
    asked = [each for each in signature(kind).parameters.values() if each.default is each.empty]
    given = {each.name: SAMPLES.get(str(each.annotation), "what") for each in asked}
    return kind(**given)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_read_with_its_text_and_its_fields(kind: type[TxSagaError]) -> None:
    error = made(kind)
    error.add_note("where it was")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), str(again), again.__dict__) == (kind, str(error), error.__dict__)


def waits() -> None:
    raise OwnLock("lane 'books'", "books", "the main work", whole="transaction", remedy="settle it first")


def test_a_pool_of_processes_gives_back_the_error_itself() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(OwnLock, match="its own transaction holds in the main work; settle it first") as told:
            pool.submit(waits).result(60)
    assert (told.value.waiter, told.value.holder) == ("lane 'books'", "the main work")
