"""The reference names everything that is public, and nothing that is not there."""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import txsaga
from tests.architecture.sources import PACKAGE
from txsaga import errors, rocketmq
from txsaga.broker import Broker
from txsaga.checkback.checkers import Question
from txsaga.checkback.profile import CheckProfile
from txsaga.clusters.broker_cluster import BrokerCluster
from txsaga.clusters.producer import ClusterProducer
from txsaga.clusters.reader import ClusterConsumer, ClusterStream
from txsaga.consume.consumer import Consumer
from txsaga.consume.delivery import Delivery
from txsaga.consume.groups import DeadLetters
from txsaga.consume.stream import Stream
from txsaga.core.layout import Batch
from txsaga.core.message import MAX_BODY, MAX_HEADERS, MAX_KEY, MAX_TAG, Delivered, Message
from txsaga.core.records import DecisionOutcome, HalfView, Receipt
from txsaga.evidence.late_bodies import Slot
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.flow import Flow
from txsaga.flows.journal import Journal
from txsaga.flows.lane import BlockLane, FlowLane
from txsaga.flows.saga import Saga
from txsaga.lake.cut import Cut
from txsaga.lake.table_writes import HomeTable, Table
from txsaga.messages.joined_sends import JoinedSends
from txsaga.messages.producer import Producer
from txsaga.messages.replay import ReplayResult
from txsaga.messages.transaction import Transaction
from txsaga.rocketmq import EndRequest, SendResult, TransactionListener, TransactionMQProducer

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PUBLIC: Mapping[str, type] = {
    each.__name__: each
    for each in (
        Broker,
        Producer,
        Transaction,
        Coordinated,
        BlockLane,
        Flow,
        FlowLane,
        Journal,
        Table,
        HomeTable,
        Saga,
        BrokerCluster,
        ClusterProducer,
        ClusterConsumer,
        ClusterStream,
        Slot,
        JoinedSends,
        Consumer,
        Delivery,
        DeadLetters,
        ReplayResult,
        Stream,
        Batch,
        Message,
        Delivered,
        Cut,
        Question,
        HalfView,
        Receipt,
        DecisionOutcome,
        CheckProfile,
    )
}
ROCKETMQ: Mapping[str, type] = {
    each.__name__: each for each in (TransactionMQProducer, TransactionListener, SendResult, EndRequest)
}
PAGES = {"api.md": PUBLIC, "rocketmq.md": ROCKETMQ}
# Attributes that a constructor sets; the others are found on the class.
SET_WHEN_MADE: Mapping[type, set[str]] = {
    Producer: {"checker", "group"},
    Transaction: {"decision"},
    Coordinated: {"decision"},
    Flow: {"decision"},
    Saga: {"decision"},
    Stream: {"group", "member"},
    BrokerCluster: {"definition"},
    ClusterProducer: {"group"},
    Consumer: {"group", "member"},
    Delivery: {"delivered"},
    Table: {"name"},
    HomeTable: {"name"},
}
ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
SETTING = re.compile(r"TXSAGA_[A-Z]+(?:_[A-Z]+)*")


def section(name: str, page: str = "api.md") -> str:
    """Return one chapter of a page of public names."""
    text = (REFERENCE / page).read_text("utf-8")
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no chapter {name}"
    return found[1]


def named(text: str) -> list[str]:
    """Return the names that the rows of tables begin with."""
    return [row[1].partition("(")[0] for row in ROW.finditer(text)]


def public(cls: type) -> Iterator[str]:
    """Yield the public attributes of a class of ours; RocketMQ's producer has those of `Producer` as well."""
    others = Producer.__mro__ if cls is TransactionMQProducer else ()
    ours = [base for base in cls.__mro__ if base.__module__.startswith("txsaga.") and base not in others]
    for base in ours:
        yield from vars(base)
        yield from inspect.get_annotations(base)
        yield from SET_WHEN_MADE.get(base, ())


@pytest.mark.parametrize(("page", "name"), [(page, name) for page, classes in PAGES.items() for name in classes])
def test_a_page_of_public_names_has_every_attribute(page: str, name: str) -> None:
    expected = {attribute for attribute in public(PAGES[page][name]) if not attribute.startswith("_")}
    listed = named(section(name, page))
    assert set(listed) == expected
    assert len(listed) == len(set(listed))


def test_the_page_of_public_names_has_every_name_of_the_package() -> None:
    assert set(named(section("txsaga"))) == set(txsaga.__all__)


def test_the_page_of_rocketmq_has_every_name_of_its_module() -> None:
    assert set(ROCKETMQ) == set(rocketmq.__all__)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_public_names_shows_the_parameters_of_each_method(page: str) -> None:
    wrong = []
    for name, cls in PAGES[page].items():
        for row in ROW.finditer(section(name, page)):
            method, bracket, shown = row[1].partition("(")
            if bracket:
                parameters = [p for p in inspect.signature(getattr(cls, method)).parameters if p != "self"]
                said = re.findall(r"(?:^|, )\*{0,2}(\w+)", shown.rstrip(")"))
                if said != parameters:
                    wrong.append(f"{name}.{method}: the page says {said}, the code {parameters}")
    assert not wrong


def test_every_error_is_listed_as_it_is() -> None:
    rows = ROW.findall((REFERENCE / "errors.md").read_text("utf-8"))
    listed = {name: [cell.strip().strip("`") for cell in rest.split("|")][:3] for name, rest in rows}
    tree = {
        name: [_base(cls), "yes" if cls.retryable else "no", cls.code]
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, errors.TxSagaError)
    }
    assert listed == tree


def _base(cls: type[errors.TxSagaError]) -> str:
    return "" if cls is errors.TxSagaError else cls.__mro__[1].__name__


def test_every_setting_that_the_code_reads_is_listed() -> None:
    read = {name for path in PACKAGE.rglob("*.py") for name in SETTING.findall(path.read_text("utf-8"))}
    page = (REFERENCE / "settings.md").read_text("utf-8")
    listed = set(SETTING.findall(page[: page.index("## The URL")]))
    # A prefix, part of an Airflow connection's name, and what a shell sets when it asks for completions.
    assert listed == read - {"TXSAGA_PG", "TXSAGA_DEFAULT", "TXSAGA_COMPLETE"}


def test_the_arguments_of_connect_are_listed() -> None:
    page = (REFERENCE / "settings.md").read_text("utf-8")
    listed = named(page[page.index("## Arguments") : page.index("## Figures")])
    assert set(listed) == set(inspect.signature(txsaga.connect).parameters)


@pytest.mark.parametrize(
    ("what", "figure"),
    [
        ("body of a message", f"{MAX_BODY // 2**20} MiB"),
        ("key, ordering key, unique key", f"{MAX_KEY:,} bytes"),
        ("tag", f"{MAX_TAG} bytes"),
        ("headers", f"{MAX_HEADERS // 2**10} KiB"),
    ],
)
def test_limits_are_listed_as_they_are(what: str, figure: str) -> None:
    assert f"| {what} | {figure} |" in (REFERENCE / "settings.md").read_text("utf-8")
