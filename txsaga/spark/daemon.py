"""
What a local Spark forks its Python workers from: `spark.python.daemon.module`.

Spark puts PySpark's zip ahead of the installed package, and each task has Python read that archive again, once for each
package that was imported from it: a quarter of a second of every task. Here the installed package is taken, and what
tasks of the data source import is imported once. Without this module everything works, and messages take twice as long.
"""

import gc
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

ZIP = "pyspark.zip"


def without_zip(path: list[str]) -> list[str]:
    """Return where to look for modules, without the archive if the package that it is part of is installed."""
    archives = [place for place in path if Path(place).name == ZIP]
    left = [place for place in path if place not in archives]
    found = PathFinder.find_spec("pyspark", left)
    if found is None or found.origin is None:
        return path
    own = Path(found.origin).parent / "python" / "lib" / ZIP
    return left if all(Path(archive).resolve() == own.resolve() for archive in archives) else path


if __name__ == "__main__":
    sys.path[:] = without_zip(sys.path)
    from pyspark import daemon

    with suppress(ImportError):
        from txsaga.spark import stored  # noqa: F401  # for the tasks

    gc.freeze()  # each task ends with a collection: what is here for good is left out of it
    daemon.manager()  # type: ignore[no-untyped-call]  # PySpark gives it no types
