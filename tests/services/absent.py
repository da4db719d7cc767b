"""What becomes of a test whose real part is not installed: skipped on a laptop, failed where CI=true."""

import os
from typing import NoReturn

import pytest


def ci_or_skip(service: str, install_line: str) -> NoReturn:
    """End the test: a skip with the install line as its reason, or a failure in CI."""
    reason = f"{service} is not here: {install_line}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
