"""The scene of the rules, for every file here."""

from tests.rules.scene import books, broker, library, open_broker, probe, shop, store_url

__all__ = ["books", "broker", "library", "open_broker", "probe", "shop", "store_url"]
