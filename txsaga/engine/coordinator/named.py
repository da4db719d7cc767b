"""
The resources that a coordinated transaction names, each probed before its first work.

What can't take part is refused here, before anything is begun. If it were not, the first to notice would be the vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from txsaga.engine.coordinator.looped import looped
from txsaga.engine.kernel import Kernel
from txsaga.engine.patience import patiently
from txsaga.engine.waiting import stack
from txsaga.errors import ConfigError
from txsaga.model.arguments import check_kind
from txsaga.model.records import Resource
from txsaga.ports.participants import Participant

Named = tuple[Resource, Participant]


def check_names(resources: Sequence[str]) -> None:
    """Refuse names that could be nobody's, or somebody's twice."""
    for name in resources:
        check_kind(name, str, "a resource", "give the names of registered ones")
    if not resources or len(set(resources)) != len(resources):
        raise ConfigError("name each resource of a coordinated transaction once, and at least one")


def resources_of(kernel: Kernel, names: Sequence[str], patience: float) -> Sequence[Named]:
    """Return them; one that is away is waited for."""
    resources = [patiently(partial(kernel.participant, name), patience) for name in names]
    unable = [each.name for _, each in resources if not each.capabilities.two_phase]
    if len(unable) > 1:
        raise ConfigError(
            f"{' and '.join(map(repr, unable))} can't vote, and only one resource can come last; "
            "leave all but one of them to a transaction of their own"
        )
    if stack() is not None:
        for _, each in resources:
            looped(each)  # refuses what can't be worked in there
    return resources
