"""
Asking a transaction's run before anything else is judged (R5).

A run that is alive, or that nobody can ask, keeps its transaction. If this were left out, a flow that waits a day for
somebody's approval would be rolled back.
"""

from __future__ import annotations

import logging
from functools import partial

from txsaga.engine.kernel import Kernel
from txsaga.errors import StoreUnavailable
from txsaga.model.records import Doubt
from txsaga.ports.runs import RunState

logger = logging.getLogger("txsaga")

LIVES = "its run is alive, or nobody can say"


def lives(kernel: Kernel, doubt: Doubt) -> bool:
    """Tell whether the run of a transaction may go on with it."""
    if doubt.run is None:
        return False
    try:
        if kernel.runs is None:
            return True
        asked = kernel.beside.begin("the host of runs", partial(kernel.runs.state, doubt.run))
        return asked() is not RunState.OVER
    except KeyboardInterrupt:
        raise
    except StoreUnavailable as silent:
        logger.warning("run %s is taken for alive: %s", doubt.run, silent, extra={"txid": doubt.txid})
        return True
    except BaseException:  # a host that fails, in whatever way, has not said that the run is over
        logger.exception("the host of run %s failed", doubt.run, extra={"txid": doubt.txid})
        return True
