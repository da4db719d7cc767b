"""Databases of every kind, and a shop."""

from tests.scene.fixtures import engine_of, moody_shop, shop, store, stored

__all__ = ["engine_of", "moody_shop", "shop", "store", "stored"]
