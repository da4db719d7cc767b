"""A store, its rows, and brokers on it; a file may give its own under the same name."""

from tests.scene.fixtures import store, stored
from tests.scene.rules import books, broker, library, open_broker, probe, seller, store_url

__all__ = ["books", "broker", "library", "open_broker", "probe", "seller", "store", "store_url", "stored"]
