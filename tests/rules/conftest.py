"""The scene of the rules, for every file here."""

from tests.scene.rules import books, broker, library, open_broker, probe, seller, store_url

__all__ = ["books", "broker", "library", "open_broker", "probe", "seller", "store_url"]
