"""A file is named after the thing in it: a name that fits anything says that a concept is missing."""

from tests.architecture.sources import from_root, python_files

EMPTY_NAMES = {"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = (from_root(path).removesuffix(".py") for path in python_files())
    assert not [name for name in names if EMPTY_NAMES & set(name.split("/"))]
