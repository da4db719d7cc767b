"""A store and its rows."""

from tests.scene.fixtures import store, stored

__all__ = ["store", "stored"]
