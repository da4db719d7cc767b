"""
Asking about a transaction's run before anything else is judged (R5).

A live run keeps its transaction; so does one whose host is silent, until the total time of its group is over. Without
this, a flow that waits a day for an approval would be rolled back.
"""

from __future__ import annotations

import logging
from functools import partial

from txsaga.checkback.runs import RunState
from txsaga.core.kernel import Kernel
from txsaga.core.records import Doubt
from txsaga.errors import StoreUnavailable

logger = logging.getLogger("txsaga")

LIVES = "its run is alive"
SILENT = "nobody can say whether its run is alive"


def state_of_run(kernel: Kernel, doubt: Doubt) -> RunState:
    """Return the state of a transaction's run; without a run, it is over."""
    if doubt.run is None:
        return RunState.OVER
    if kernel.runs is None:
        return RunState.UNREACHABLE
    try:
        said = kernel.beside.begin("the host of runs", partial(kernel.runs.state, doubt.run))()
        return said if said in (RunState.ALIVE, RunState.OVER) else RunState.UNREACHABLE
    except StoreUnavailable as silent:
        logger.warning("nobody can say whether run %s is alive: %s", doubt.run, silent, extra={"txid": doubt.txid})
        return RunState.UNREACHABLE
    except Exception:  # a host that fails in any way has not reported the run as over
        logger.exception("the host of run %s failed", doubt.run, extra={"txid": doubt.txid})
        return RunState.UNREACHABLE
