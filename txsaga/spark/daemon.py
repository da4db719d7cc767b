"""
What a local Spark forks its Python workers from: `spark.python.daemon.module`.

Spark puts PySpark's zip ahead of the installed package, and each task has Python read that archive again, once for each
package that was imported from it: a quarter of a second of every task. Here the installed package is taken, and what
tasks of the data source import is imported once. Without this module everything works, and messages take twice as long.
"""

import gc
import sys
from importlib.machinery import PathFinder
from pathlib import Path

ZIP = "pyspark.zip"


def without_zip(path: list[str]) -> list[str]:
    """Return where to look for modules, without the archive if PySpark is installed as well."""
    left = [place for place in path if Path(place).name != ZIP]
    return left if PathFinder.find_spec("pyspark", left) is not None else path


if __name__ == "__main__":
    sys.path[:] = without_zip(sys.path)
    from pyspark import daemon

    from txsaga.spark import stored  # noqa: F401  # for the tasks

    gc.freeze()  # each task ends with a collection: what is here for good is left out of it
    daemon.manager()  # type: ignore[no-untyped-call]  # PySpark gives it no types
