"""What Airflow finds in its plugins folder: the plugin of txsaga, and nothing else."""

from txsaga.provider.plugin import TxSagaPlugin

__all__ = ["TxSagaPlugin"]
