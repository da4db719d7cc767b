"""The composition root: settings in, broker out. It alone knows which adapter fills which port."""

from txsaga.wiring.clusters import cluster
from txsaga.wiring.connecting import connect, embedded_url, open_store
from txsaga.wiring.loading import load
from txsaga.wiring.resources import Resources, resource_engine

__all__ = ["Resources", "cluster", "connect", "embedded_url", "load", "open_store", "resource_engine"]
