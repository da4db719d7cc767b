"""What Airflow finds in its folder of plugins: that of txsaga where it lies on the path, nothing where it is installed.

An installed package registers its plugin by itself, and Airflow refuses a second one of the same name.
"""

from importlib.metadata import entry_points

if not any(each.value.startswith("txsaga.") for each in entry_points(group="airflow.plugins")):
    from txsaga.provider.plugin import TxSagaPlugin

    __all__ = ["TxSagaPlugin"]
