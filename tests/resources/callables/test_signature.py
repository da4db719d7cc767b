"""Only who knows the secret is believed, and only what he signed."""

import pytest

from txsaga import verify
from txsaga.errors import ConfigError, SignatureRefused
from txsaga.resources.http import CallPhase, SignedCall, signed
from txsaga.testing.participant_contract import new_branch

SECRET = "a secret of the tests, long enough"
CALLED = SignedCall(new_branch(3, 2), CallPhase.CONFIRM)
HEADERS = signed(CALLED, "/confirm?v=1", b"{}", SECRET)


def test_what_was_signed_is_read_back() -> None:
    assert verify(HEADERS, b"{}", SECRET, path="/confirm?v=1") == CALLED
    lower = {name.lower(): value for name, value in HEADERS.items()}
    assert verify(lower, b"{}", SECRET.encode(), path="/confirm?v=1").id == CALLED.branch.gid


@pytest.mark.parametrize(
    "changed",
    [
        {"Txsaga-Phase": "cancel"},
        {"Txsaga-Branch": "4"},
        {"Txsaga-Attempt": "1"},
        {"Txsaga-Transaction": new_branch().transaction},
        {"Txsaga-Signature": "v1=" + "0" * 64},
        {"Txsaga-Signature": "ä"},
    ],
)
def test_a_changed_header_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(SignatureRefused, match="not signed"):
        verify({**HEADERS, **changed}, b"{}", SECRET, path="/confirm?v=1")


def test_another_body_path_method_or_secret_is_refused() -> None:
    for body, secret, path, method in (
        (b"{ }", SECRET, "/confirm?v=1", "POST"),
        (b"{}", SECRET + "!", "/confirm?v=1", "POST"),
        (b"{}", SECRET, "/confirm", "POST"),
        (b"{}", SECRET, "/confirm?v=1", "PUT"),
    ):
        with pytest.raises(SignatureRefused, match="not signed"):
            verify(HEADERS, body, secret, path=path, method=method)


@pytest.mark.parametrize("name", [name for name in HEADERS if name != "Idempotency-Key"])
def test_a_missing_or_malformed_header_is_refused(name: str) -> None:
    without = {each: value for each, value in HEADERS.items() if each != name}
    with pytest.raises(SignatureRefused, match="names no branch"):
        verify(without, b"{}", SECRET, path="/confirm?v=1")
    with pytest.raises(SignatureRefused):
        verify({**HEADERS, name: "what?"}, b"{}", SECRET, path="/confirm?v=1")


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="16"):
        verify(HEADERS, b"{}", "secret", path="/")
