"""The scene of the rules, for tests that need whole brokers; a file may give its own under the same name."""

from tests.rules.scene import books, broker, library, open_broker, probe, shop, store_url

__all__ = ["books", "broker", "library", "open_broker", "probe", "shop", "store_url"]
