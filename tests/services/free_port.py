"""Ports for servers of tests.

Below the ephemeral range: a port up there may be somebody's outgoing socket when a killed server comes back.
"""

import random
import socket

PORTS = range(27000, 32000)


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens."""
    return next(port for port in random.sample(PORTS, len(PORTS)) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
