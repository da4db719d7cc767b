"""Shops, stores and brokers; a file may give its own under the same name."""

from tests.scene.fixtures import any_shop, engine_of, halves, moody_shop, shop, store, stored
from tests.scene.rules import books, broker, library, open_broker, probe, seller, store_url

__all__ = [
    "any_shop",
    "books",
    "broker",
    "engine_of",
    "halves",
    "library",
    "moody_shop",
    "open_broker",
    "probe",
    "seller",
    "shop",
    "store",
    "store_url",
    "stored",
]
