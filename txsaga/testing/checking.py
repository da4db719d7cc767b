"""One round of check-back in the caller's thread: what would run in the background, in its order."""

from __future__ import annotations

from txsaga.engine.answering import Answering
from txsaga.engine.check_back import CheckBack
from txsaga.engine.kernel import Kernel
from txsaga.engine.lease import Heartbeat
from txsaga.model.checks import CheckProfile


def check_once(kernel: Kernel, profile: CheckProfile | None = None) -> int:
    """Enlist this process, run a round, answer what it asks here; return how many transactions the round dealt with."""
    Heartbeat(kernel).enlist()  # it holds nothing: what is open here plays what a dead process left
    done = CheckBack(kernel, profile).run_once()
    answering = Answering(kernel)
    while answering.run_once():
        pass
    return done
