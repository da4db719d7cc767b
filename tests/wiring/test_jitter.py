"""What many members draw by chance differs, and stays close to what was said."""

from contextlib import closing

import pytest

import txsaga
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres


def test_members_rest_for_a_little_longer_or_shorter_than_was_said(home_url: str) -> None:
    open_store(home_url).close()
    with closing(txsaga.connect(home_url, roles=False, env={})) as broker:
        drawn = [broker.kernel.jitter() for _ in range(100)]
    assert len(set(drawn)) > 50
    assert all(0.8 <= factor <= 1.2 for factor in drawn)
    assert min(drawn) < 1.0 < max(drawn)
