"""
The module from which a local Spark forks its Python workers: `spark.python.daemon.module`.

Spark puts PySpark's zip ahead of the installed package, and each task makes Python read that archive again, once for
each package imported from it: a quarter of a second per task. This daemon uses the installed package, and imports the
modules of data source tasks once. Without it everything works, but messages take twice as long.
"""

import gc
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path

ZIP = "pyspark.zip"


def without_zip(path: list[str]) -> list[str]:
    """Return the module path without the archive, if the package that contains the archive is installed."""
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

    gc.freeze()  # each task ends with a collection: exclude permanent objects from it
    daemon.manager()  # type: ignore[no-untyped-call]  # PySpark has no types for it
