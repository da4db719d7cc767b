"""
A service over HTTP as a participant: three addresses, signed calls, answers by their status.

    try       2xx yes; 409 no; anything else, or no answer: no, and it is cancelled
    confirm   2xx done; 404 nobody knows it: a hazard; anything else, or no answer: asked again
    cancel    the same; a 404 for a try that never came through is done

The whole call ends within its time-out, however slowly the service answers. A redirect is not followed: the signature
is for one path. If an answer is lost, the same call comes again.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from threading import TIMEOUT_MAX
from urllib.parse import SplitResult, urlsplit

from txsaga.adapters.services import path_of, replied
from txsaga.adapters.tcc.participant import TccParticipant
from txsaga.adapters.tcc.signature import Called, Phase, Secret, key_of, signed
from txsaga.errors import ConfigError, xa
from txsaga.model.arguments import check_kind
from txsaga.model.branch import BranchId, Finish
from txsaga.model.capabilities import Kind
from txsaga.model.reservation import Reservation
from txsaga.ports.services import Reply
from txsaga.ports.store import Store

TIMEOUT = 10.0
MORE = "give seconds, more than 0"
NO, UNKNOWN = 409, 404
BUSY = (408, 429)


class HttpService:
    """A service to be registered; the secret stays in this process."""

    def __init__(
        self,
        *,
        try_: str,
        confirm: str,
        cancel: str,
        secret: Secret,
        timeout: float = TIMEOUT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        check_kind(timeout, (int, float), "timeout", MORE)
        if not 0 < timeout <= TIMEOUT_MAX:
            raise ConfigError(f"timeout is {timeout!r}; {MORE}")
        self._urls = {Phase.TRY: _url(try_), Phase.CONFIRM: _url(confirm), Phase.CANCEL: _url(cancel)}
        self._key, self._timeout, self._tls = key_of(secret), timeout, tls

    def participant(self, name: str, store: Store) -> TccParticipant:
        """Return it as a participant."""
        place = " ".join(url.geturl() for url in self._urls.values())
        return TccParticipant(self, name=name, kind=Kind.HTTP, place=place, store=store)

    def attempt(self, branch: BranchId, arguments: Mapping[str, object]) -> object:
        """Ask the service to reserve; return its answer, read as JSON where it is that."""
        try:
            answer = self._call(Phase.TRY, branch, arguments)
        except OSError as lost:
            raise xa.CommunicationFailed(f"the try of branch {branch.gid} was not answered: {lost}") from lost
        if answer.status == NO:
            raise xa.RolledBack(f"the service says no to branch {branch.gid}: {answer}")
        if not answer.is_yes:
            raise xa.OtherReason(f"the try of branch {branch.gid} failed: {answer}")
        if answer.cut:
            raise xa.OtherReason(f"the try of branch {branch.gid} was answered with {answer.cut}")
        try:
            return json.loads(answer.body) if answer.body else None
        except ValueError:
            return answer.body

    def confirm(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Ask the service to do what it reserved."""
        return self._told(Phase.CONFIRM, branch, reserved)

    def cancel(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Ask the service to give back what it reserved."""
        return self._told(Phase.CANCEL, branch, reserved)

    def _told(self, phase: Phase, branch: BranchId, reserved: Reservation) -> Finish:
        try:
            answer = self._call(phase, branch, reserved.arguments)
        except OSError as lost:
            raise xa.ResourceManagerFailed(f"{phase} of branch {branch.gid} was not answered: {lost}") from lost
        if answer.is_yes:
            return Finish.DONE
        if answer.status == UNKNOWN:
            return Finish.HAZARD if reserved.tried else Finish.DONE
        if answer.status >= 500 or answer.status in BUSY:
            raise xa.ResourceManagerFailed(f"{phase} of branch {branch.gid} failed: {answer}")
        raise xa.ResourceManagerError(f"{phase} of branch {branch.gid} was refused, it is asked again: {answer}")

    def _call(self, phase: Phase, branch: BranchId, arguments: Mapping[str, object]) -> Reply:
        url, body = self._urls[phase], json.dumps(arguments, sort_keys=True).encode()
        signature = signed(Called(branch, phase), path_of(url), body, self._key)
        headers = {"Content-Type": "application/json", **signature}
        return replied("POST", url, body, headers, self._timeout, self._tls)


def _url(text: str) -> SplitResult:
    check_kind(text, str, "the address", "write https://host/path")
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise ConfigError("an address of the service can't be read; write https://host/path") from None
    if url.scheme not in ("http", "https") or not url.hostname or url.fragment or "@" in url.netloc:
        raise ConfigError(
            "an address of the service must be https://host/path, without user, password and fragment; "
            "the secret signs each call"
        )
    return url
