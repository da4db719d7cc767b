"""Brokers on a store whose tables lie in the home database."""

from tests.scene.fixtures import store, stored
from tests.scene.rules import books, broker, library, open_broker, probe, seller, store_url

__all__ = ["books", "broker", "library", "open_broker", "probe", "seller", "store", "store_url", "stored"]
