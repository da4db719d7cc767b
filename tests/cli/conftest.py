"""A namespace for the command line, what lies in it, and ways to call commands on it."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Iterator

import pytest

import txsaga
from tests.cli.program import Said, is_setting
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from txsaga.broker import Broker
from txsaga.cli.__main__ import main
from txsaga.wiring.connecting import open_store

Cli = Callable[..., Said]


@pytest.fixture(scope="session")
def shared_url(home_database: str) -> str:
    """Give the URL of a namespace that all tests of commands share; names of topics are their own."""
    url = f"{home_database}{'&' if '?' in home_database else '?'}namespace={fresh_name('cli')}"
    open_store(url).close()
    return url


@pytest.fixture
def own_url(home_url: str) -> str:
    """Give the URL of a namespace that is this test's alone."""
    open_store(home_url).close()
    return home_url


@pytest.fixture
def broker(shared_url: str) -> Iterator[Broker]:
    """Give a broker on the shared namespace, for what the command line can't do."""
    with txsaga.connect(shared_url, roles=False, answering=False, env={}) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """Give a fresh topic for plain messages."""
    return broker.create_topic(fresh_name("topic"), queues=2).name


@pytest.fixture
def flow(broker: Broker) -> str:
    """Give a fresh topic for transactions."""
    return broker.create_topic(fresh_name("flow"), "transaction", queues=1).name


@pytest.fixture
def stored(shared_url: str) -> Stored:
    """Give the rows of the shared namespace."""
    return Stored(shared_url)


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Give a way to call a command in this process, without any setting."""
    for name in list(filter(is_setting, os.environ)):
        monkeypatch.delenv(name)

    def call(*words: str, stdin: bytes = b"", **env: str) -> Said:
        with monkeypatch.context() as changed:
            changed.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in env.items():
                changed.setenv(name, value)
            capsys.readouterr()
            code = main(words)
        out, err = capsys.readouterr()
        return Said(code=code, out=out, err=err)

    yield call
    logger = logging.getLogger("txsaga")  # commands send its records to the output of that very test
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture
def cli(bare: Cli, shared_url: str) -> Cli:
    """Give a way to call a command on the shared namespace."""
    return lambda *words, **options: bare(*words, **({"TXSAGA_URL": shared_url} | options))
