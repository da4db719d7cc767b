"""Iceberg's REST compatibility kit, as published, against the catalog at a URL.

`python -m tests.open_catalog.kit URL` drops what an earlier run left there, runs it and prints what did not pass;
further words are tests, by name.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from pyiceberg.catalog import Catalog, load_catalog

from tests.services.absent import ci_or_skip

JARS = Path(__file__).parents[2] / ".iceberg-kit"
VERSION = "1.10.1"
INSTALL_LINE = "run .ci/iceberg-kit, which needs Maven and a JDK"
SECONDS = 240
TABLES, VIEWS = "WiderTables", "RESTCompatibilityKitViewCatalogTests"
WIDER = Path(__file__).with_name(f"{TABLES}.java")
SETTINGS = {"rck.requires-namespace-create": "true", "rck.supports-names-with-dot": "true"}
"""Turns on the tests that the kit leaves out by default."""
ASSUMED = "org.opentest4j.TestAbortedException: assumption was not met due to: "
STACK = re.compile(r"\s+at [\w./$<>]+\(")
LEFT = ("parent", "a", "ns", "newdb", "ns1", "ns2", "ns_1", "ns_2", "other_ns", "non-existing")
"""Namespaces that tests leave. The kit refuses to start with some of them, and its tests to make the others."""


class Verdict(NamedTuple):
    """What the kit says of one test; the reason is a line."""

    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""


def java(version: str, *options: str, beside: str = "") -> list[str]:
    """Return the command that runs a class of the kit; without it end the test."""
    folder = JARS / version
    if not (folder / "ready").exists() or not shutil.which("javac"):
        ci_or_skip("Iceberg's REST compatibility kit", INSTALL_LINE)
    small = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *small, *options, "-cp", f"{folder}/*:{beside}"]


def run(
    url: str,
    *,
    classes: Sequence[str] = (TABLES, VIEWS),
    tests: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
    version: str = VERSION,
    seconds: float = SECONDS,
) -> dict[str, Verdict]:
    """Run the kit, or only these tests of it; `settings` are the client's and the kit's."""
    given = {"rck.local": "false", "uri": url, **SETTINGS, **(settings or {})}
    properties = [f"-D{name}={value}" for name, value in given.items()]
    with tempfile.TemporaryDirectory(prefix="txsaga-kit-") as folder:
        command = java(version, *properties, beside=_compiled(version, folder))
        command += ["org.junit.platform.console.ConsoleLauncher", "execute"]
        command += ["--config=rck.local=false", "--disable-banner", "--details=none", f"--reports-dir={folder}"]
        command += [f"--select-class=org.apache.iceberg.rest.{each}" for each in classes]
        command += [rf"--include-methodname=.*[.#]{re.escape(each)}" for each in tests]
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, env=env()
        )
        report = Path(folder) / "TEST-junit-jupiter.xml"
        if not report.exists():
            raise RuntimeError(f"the kit did not run:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        return dict(_verdicts(report))


def empty(catalog: Catalog) -> None:
    """Drop what an earlier run of the kit left in a catalog."""
    for namespace in [each for each in catalog.list_namespaces() if each[0] in LEFT]:
        for child in catalog.list_namespaces(namespace):
            catalog.drop_namespace(child)
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        for view in catalog.list_views(namespace):
            catalog.drop_view(view)
        catalog.drop_namespace(namespace)


def _compiled(version: str, folder: str) -> str:
    """Compile our class and return where it is."""
    java(version)
    subprocess.run(["javac", "-d", folder, "-cp", f"{JARS / version}/*", str(WIDER)], check=True, timeout=60)
    return folder


def env() -> dict[str, str]:
    """Return the environment without what client and server would take for settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CATALOG_")}


def _verdicts(report: Path) -> Iterable[tuple[str, Verdict]]:
    for case in ElementTree.parse(report).iter("testcase"):
        area = "views" if case.get("classname", "").endswith(VIEWS) else "tables"
        yield f"{area}.{case.get('name', '').replace('()', '')}", _verdict(case)


def _verdict(case: ElementTree.Element) -> Verdict:
    for child in case:
        if child.tag in {"failure", "error"}:
            return Verdict("failed", _line(child))
        if child.tag == "skipped":
            return Verdict("skipped", _line(child))
    return Verdict("passed")


def _line(child: ElementTree.Element) -> str:
    """Return what was said, up to the stack, in one line."""
    said = STACK.split(child.get("message") or child.text or "", maxsplit=1)[0]
    return " ".join(said.removeprefix(ASSUMED).split())


def main() -> None:
    """Run the kit of the command line and print what did not pass, then the sums."""
    parser = argparse.ArgumentParser(prog="python -m tests.open_catalog.kit", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("tests", nargs="*", help="names of tests, without what stands in brackets")
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="rck.* or of the client")
    parser.add_argument("--full", action="store_true", help="print whole reasons")
    asked = parser.parse_intermixed_args()
    settings = dict(each.split("=", 1) for each in asked.set)
    empty(load_catalog("kit", type="rest", uri=asked.url, **settings))
    _print(run(asked.url, tests=asked.tests, settings=settings, version=asked.version), None if asked.full else 240)


def _print(verdicts: Mapping[str, Verdict], width: int | None) -> None:
    for name, (outcome, reason) in sorted(verdicts.items(), key=lambda each: (each[1].outcome, each[0])):
        if outcome != "passed":
            print(f"{outcome}  {name}: {reason[:width]}")
    for area in ("tables", "views"):
        sums = Counter(verdict.outcome for name, verdict in verdicts.items() if name.startswith(area))
        print(f"{area}: {sums.total()} run,", *(f"{sums[each]} {each}" for each in ("passed", "failed", "skipped")))


if __name__ == "__main__":
    main()
