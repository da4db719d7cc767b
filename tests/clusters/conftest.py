"""A town of three brokers."""

from collections.abc import Iterator

import pytest

import txsaga
from tests.clusters.outage import Outage
from tests.clusters.town import NAMES, ORDERS, Town
from tests.scene.stored import Stored
from tests.services.databases import fresh_name
from tests.services.spares import Spares
from txsaga.wiring.connecting import open_store


@pytest.fixture
def log_of() -> list[str]:
    """Give the names and places of the coordinator's facts in their order."""
    return []


@pytest.fixture
def town(home_database: str, home_url: str, spares: Spares, log_of: list[str]) -> Iterator[Town]:
    """Give three brokers and their coordinator."""
    open_store(home_url).close()
    joint = "&" if "?" in home_database else "?"
    direct = {name: f"{home_database}{joint}namespace={fresh_name(name)}" for name in NAMES}
    for url in direct.values():
        open_store(url).close()
    networks = {name: Outage(url) for name, url in direct.items()}
    heard = [lambda fact: log_of.append(f"{fact.name} {fact.about}".strip())]
    brokers = {name: txsaga.connect(url, roles=False, answering=False, env={}) for name, url in direct.items()}
    coordinator = txsaga.connect(home_url, observers=heard, roles=False, answering=False, env={})
    for broker in brokers.values():
        broker.create_topic(ORDERS, "transaction", queues=1)
        broker.create_topic("plain", queues=1)
    town = Town(
        coordinator,
        Stored(home_url),
        brokers,
        {name: Stored(url) for name, url in direct.items()},
        networks,
        {name: network.url for name, network in networks.items()},
    )
    yield town
    for cluster in town.clusters:
        cluster.close()
    for broker in (coordinator, *brokers.values()):
        broker.close()
    for network in networks.values():
        network.close()
    for url in direct.values():
        spares.give_back(url)
