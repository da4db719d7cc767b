"""A missing service is a skip on a laptop and a failure in CI."""

import pytest

from tests.services.absent import ci_or_skip


def test_on_a_laptop_the_test_is_skipped_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="RedisX is not here: apt-get install redisx"):
        ci_or_skip("RedisX", "apt-get install redisx")


def test_in_ci_the_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="RedisX is not here"):
        ci_or_skip("RedisX", "apt-get install redisx")
