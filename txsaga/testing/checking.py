"""One round of check-back in the caller's thread: the background work, in its order."""

from __future__ import annotations

from txsaga.broker import Broker
from txsaga.checkback.answering import AnswerRole
from txsaga.checkback.heartbeat import Heartbeat
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.round import CheckBack


def check_once(broker: Broker, profile: CheckProfile | None = None) -> int:
    """Enlist this process, run a round, answer its questions here; return how many transactions the round handled."""
    kernel = broker.kernel
    Heartbeat(kernel).enlist()  # holds no lease: transactions open here act as those of a dead process
    done = CheckBack(kernel, profile).run_once()
    answering = AnswerRole(kernel)
    while answering.run_once():
        pass
    return done
