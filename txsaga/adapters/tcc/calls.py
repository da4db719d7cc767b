"""The three calls of a participant that reserves, as functions and services are called in their own ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from txsaga.model.branch import BranchId, Finish
from txsaga.model.reservation import Reservation


class Calls(Protocol):
    """Try, confirm and cancel of one participant."""

    def attempt(self, branch: BranchId, arguments: Mapping[str, object]) -> object:
        """Reserve; any error is a no. What is returned is the user's."""

    def confirm(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Do what was reserved: DONE, or HAZARD when it is not known there. An error of `errors.xa` is asked again."""

    def cancel(self, branch: BranchId, reserved: Reservation) -> Finish:
        """Give back what was reserved, also where the try never came through."""
