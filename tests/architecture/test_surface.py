"""The public surface is what `txsaga.__all__` says: all of it is there, and nothing beside it."""

import inspect

import txsaga


def test_every_public_name_resolves() -> None:
    assert txsaga.__all__
    missing = [name for name in txsaga.__all__ if not hasattr(txsaga, name)]
    assert not missing


def test_no_public_name_stands_twice() -> None:
    assert len(set(txsaga.__all__)) == len(txsaga.__all__)


def test_nothing_public_is_left_out_of_the_list() -> None:
    public = {name for name, value in vars(txsaga).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public <= set(txsaga.__all__)
