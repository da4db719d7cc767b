"""The embedded PostgreSQL: found or started on demand, safe under root and under kill -9.

`EmbeddedServer` is all that other parts need. They must not reach into the modules below it.
"""

from txsaga.adapters.embedded.halt import StopMode
from txsaga.adapters.embedded.probe import DATABASE
from txsaga.adapters.embedded.server import EmbeddedServer, ServerStatus

__all__ = ["DATABASE", "EmbeddedServer", "ServerStatus", "StopMode"]
