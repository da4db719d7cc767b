"""The TCP port of the server, on 127.0.0.1 only.

It must not pick an ephemeral port (from 32768 up): one of those may be somebody's outgoing socket
when the server comes back.
"""

import random
import socket

from txsaga.adapters.embedded.complaint import complaint

PORTS = range(27000, 28000)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Find a free port, at random so that two homes seldom meet."""
    for port in random.sample(PORTS, len(PORTS)):
        if is_free(port):
            return port
    raise complaint(f"no port from {PORTS[0]} to {PORTS[-1]} is free on 127.0.0.1: stop who listens there")
