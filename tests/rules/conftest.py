"""The scene of the rules, for every file here."""

from tests.rules.scene import books, broker, open_broker, probe, shop, store_url

__all__ = ["books", "broker", "open_broker", "probe", "shop", "store_url"]
