"""Programs in Java that use Iceberg's library as Spark ships it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from tests.services.absent import ci_or_skip

PROGRAMS = Path(__file__).parent / "programs"
JARS = Path(__file__).parents[2] / ".jars"


def java(program: str, *arguments: str, s3: bool = False) -> list[str]:
    """Return the command that runs a program; without Java or Iceberg end the test."""
    iceberg, spark = sorted(JARS.glob("iceberg-spark-runtime-*.jar")), importlib.util.find_spec("pyspark")
    absent = not iceberg or (s3 and not any(JARS.glob("s3/s3-*.jar")))
    if absent or shutil.which("java") is None or spark is None or spark.origin is None:
        ci_or_skip("Iceberg's Java library", "install a JDK and txsaga[spark], and run make jars")
    classes = f"{iceberg[-1]}:{JARS}/s3/*:{Path(spark.origin).parent}/jars/*"
    options = ["-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classes]
    return ["java", *options, str(PROGRAMS / f"{program}.java"), *arguments]
